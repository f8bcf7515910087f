"""A fio job file: a section for each disk of a workload, each on a file or device of its own.

fio starts the sections of a file together (``stonewall`` would let one wait for those before it), each as a
process of its own. ``group_reporting`` would sum them up, so it is left out: each disk is reported by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cephfit.errors import InputError
from cephfit.traces.replay.disk_words import word_of
from cephfit.traces.replay.fio_job import FioJob

MAX_SECTIONS = 4096
"""fio takes no more jobs (REAL_MAX_JOBS)."""


@dataclass(frozen=True, slots=True)
class DiskJob:
    """What a disk did, as a job.

    Attributes:
        disk: its name; None where the trace is of one disk only.
        n_accesses: that it had.
        job: that does the same.
    """

    disk: str | None
    n_accesses: int
    job: FioJob


@dataclass(frozen=True, slots=True)
class Section:
    """One section: ``name`` as fio takes it, and the file or device that the job works on."""

    name: str
    file: Path
    of: DiskJob


def sections_of(jobs: Sequence[DiskJob], *, file: Path, files: Mapping[str, Path]) -> list[Section]:
    """A section for each job, no two of them on the same file.

    Args:
        jobs: of one workload, one at least.
        file: what the only job works on; of several, each gets a file beside it that has the disk in its name.
        files: by disk, instead of that.

    Raises:
        InputError: a file is of no disk or of two, or ``file`` is one device for several disks; there are more
            disks than fio takes jobs.
    """
    _refuse_strangers(jobs, files)
    if len(jobs) > MAX_SECTIONS:
        raise InputError(
            f"fio takes up to {MAX_SECTIONS} jobs, and the trace has {len(jobs)} disks",
            remedy="choose some of them: --disk",
        )
    if len(jobs) == 1:
        return [Section("workload", files.get(jobs[0].disk or "", file), jobs[0])]
    words: dict[str, str] = {}
    for job in jobs:
        words[job.disk or ""] = word_of(job.disk or "", set(words.values()))
    if file.exists() and not file.is_file() and any(job.disk not in files for job in jobs):
        raise InputError(
            f"{len(jobs)} disks cannot all be this one",
            where=f"--file {file}",
            remedy=f"give each one its own: --disk-file {jobs[0].disk} DEVICE ..., or take one of them: --disk "
            f"{jobs[0].disk}",
        )
    sections = []
    for job in jobs:
        word = words[job.disk or ""]
        own = file.with_name(f"{file.stem}-{word}{file.suffix}")
        sections.append(Section(f"disk-{word}", files.get(job.disk or "", own), job))
    _refuse_shared(sections)
    return sections


def job_file(sections: Sequence[Section], *, title: str, seconds: float) -> str:
    """The text.

    Args:
        sections: one at least.
        title: what the workload is called.
        seconds: how long each section runs.
    """
    shared = shared_notes(sections)
    lines = [f"# The workload {_one_line(title)} as cephfit profiled it."]
    if len(sections) > 1:
        together = sum(section.of.job.nbytes for section in sections)
        is_paced = any(section.of.job.think_us or section.of.job.rates for section in sections)
        pace = "at its disk's own pace, as the disks were used" if is_paced else "as fast as that lets it"
        lines += [
            f"# Each of its {len(sections)} disks is a section. fio runs all sections at the same time, each on",
            f"# its own file (together {together} bytes) and {pace}.",
            f"# One disk alone: fio --section={sections[0].name} THIS_FILE",
            "# One after the other: stonewall=1 in each section.",
        ]
    lines += [f"# {_one_line(note)}" for note in shared]
    lines += ["[global]", "ioengine=libaio", "direct=1", f"runtime={seconds:g}s", "time_based=1"]
    total = sum(section.of.n_accesses for section in sections)
    for section in sections:
        lines.append("")
        if len(sections) > 1:
            share = 100 * section.of.n_accesses / total
            lines.append(f"# Disk {_one_line(section.of.disk or '')}: {share:.1f} % of the accesses.")
            lines += [f"# {_one_line(note)}" for note in section.of.job.notes if note not in shared]
        lines += [f"[{section.name}]", *section.of.job.options(section.file)]
    return "\n".join(lines) + "\n"


def shared_notes(sections: Sequence[Section]) -> list[str]:
    """What all of the jobs do not reproduce."""
    return [note for note in sections[0].of.job.notes if all(note in s.of.job.notes for s in sections)]


def _one_line(text: str) -> str:
    """So that a comment stays one, whatever a disk or a workload is called."""
    return " ".join(text.split())


def _refuse_strangers(jobs: Sequence[DiskJob], files: Mapping[str, Path]) -> None:
    known = [job.disk for job in jobs if job.disk is not None]
    for disk in files:
        if disk not in known:
            raise InputError(
                f"there is no job of disk {disk!r}",
                where=f"--disk-file {disk}",
                remedy=f"the disks are {', '.join(known[:64])}" if known else "give the file as --file",
            )


def _refuse_shared(sections: Sequence[Section]) -> None:
    seen: dict[Path, str] = {}
    for section in sections:
        place, disk = section.file.resolve(), section.of.disk or ""
        if place in seen:
            raise InputError(
                f"disks {seen[place]} and {disk} would overwrite each other there",
                where=str(section.file),
                remedy="give each its own file or device: --disk-file DISK FILE",
            )
        seen[place] = disk

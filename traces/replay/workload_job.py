"""A fio job file: a section for each disk of a workload, each on a file or device of its own.

A fio job that does what a profile says: sizes, mix, randomness, depth and pace.

What fio can be told is in whole percents: sizes by op (``bssplit``), reads (``rwmixread``), random by op
(``percentage_random``). A share of random accesses by size cannot be told to one job: it is that of the op.

fio starts the sections of a file together (``stonewall`` would let one wait for those before it), each as a
process of its own. ``group_reporting`` would sum them up, so it is left out: each disk is reported by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.units import MIB
from cephfit.core.values.cells import SIZE_BINS, Op
from cephfit.core.values.profile import Profile
from cephfit.traces.counting import buckets
from cephfit.traces.replay.iolog_writer import word_of

DEPTH_SHARE = 0.95
"""``iodepth`` is what so many accesses did not exceed when they were issued."""

MAX_SIZES = 30
"""Of one op; fio takes up to 64 (BSSPLIT_MAX)."""

COARSE_IOPS = 10.0
"""Of an op: below it fio's rates, which are whole accesses in a second, are off by more than 5 %."""

SHORT_THINK_US = 20_000
"""Pauses from this on keep a pace although it is not known how long an access takes: that is little of them."""

LONGEST_THINK_US = 4_000_000_000
"""fio holds it in 32 bits."""

USED_SHARE = 0.9
"""Of the recording: it is said of a disk whose accesses came within less of it."""

SMALLEST_FILE_NBYTES = 64 * MIB
"""So that a random place is hardly ever within 128 LBN of the one before."""


@dataclass(frozen=True, slots=True)
class FioJob:
    """What the job is made of.

    Attributes:
        sizes: by op, (bytes, whole percents that sum up to 100), largest share first.
        read_percent, random_percent: whole percents; the latter by op.
        iodepth: accesses in flight at most.
        think_us: between the end of an access and the next one, where the pace is kept so: where depth is 1, and
            of slow workloads.
        rates: accesses in a second by op, Poisson, where the pace is kept so.
        nbytes: of the file.
        notes: what the job does not reproduce.
    """

    sizes: dict[Op, list[tuple[int, int]]]
    read_percent: int
    random_percent: dict[Op, int]
    iodepth: int
    think_us: int | None
    rates: dict[Op, int] | None
    nbytes: int
    notes: tuple[str, ...]

    def options(self, file: Path) -> list[str]:
        """The lines of the job's own section, of which each job file has one at least (``fio_job_file``)."""
        reads, writes = (self.sizes[op] for op in Op)
        both = bool(reads) and bool(writes)
        lines = [f"filename={_escaped(file)}", f"size={self.nbytes}"]
        lines.append(f"rw={'randrw' if both else 'randread' if reads else 'randwrite'}")
        if both:
            lines.append(f"rwmixread={self.read_percent}")
        lines.append(f"bssplit={_split(reads or writes)},{_split(writes or reads)}")
        lines.append(f"percentage_random={self.random_percent[Op.READ]},{self.random_percent[Op.WRITE]}")
        lines += ["norandommap=1", "randrepeat=1", "random_generator=tausworthe64", f"iodepth={self.iodepth}"]
        if self.think_us:
            lines.append(f"thinktime={self.think_us}us")
        if self.rates is not None:
            lines.append(f"rate_iops={self.rates[Op.READ]},{self.rates[Op.WRITE]}")
            lines.append("rate_process=poisson")
        return lines


def job_of(
    profile: Profile, *, paced: bool = True, nbytes: int | None = None, seconds: float | None = None
) -> FioJob:
    """The job that reproduces a profile.

    Args:
        profile: any; with exact sizes, depths and times where its description has them.
        paced: keep the pace of the workload, else go as fast as the device lets it.
        nbytes: size of the file; None: the workload's footprint, where it is known.
        seconds: that it is to run; None: however long.

    Raises:
        InputError: no accesses, or the pace is not known.
    """
    if not profile.n_accesses:
        raise InputError("the profile has no accesses", where=profile.name)
    about = profile.description
    notes = _folded(profile) + (_spread(profile) if paced else [])
    for op in Op:
        if any(profile.accesses[op].values()) and profile.random_share(op) is None:
            notes.append(f"whether {op.value}s are random the trace does not tell: they are sequential")
    sizes = {op: _sizes(profile, op, notes) for op in Op}
    n_reads = sum(profile.accesses[Op.READ].values())
    depth = _depth(about, notes)
    think_us, rates = _pace(profile, depth, notes) if paced else (None, None)
    if think_us and seconds and think_us > 1e6 * seconds:
        think_us = round(1e6 * seconds)  # fio ends no pause before its time is over
        notes.append(f"the workload has less than one access in {seconds:g} s; the job begins with one")
    read_percent = round(100 * n_reads / profile.n_accesses)
    if 0 < n_reads < profile.n_accesses and rates is not None:
        read_percent = min(max(read_percent, 1), 99)  # the rates make the mix; of an op with 0 % fio does none
    elif 0 < n_reads < profile.n_accesses and read_percent in (0, 100):
        rare = Op.WRITE if read_percent else Op.READ
        notes.append(f"fewer than 0.5 % are {rare.value}s: fio takes whole percents and does none of them")
    if nbytes is None:
        footprint = about.get("behaviour", {}).get("footprint", {}).get("nbytes")
        if footprint is None:
            notes.append("the footprint is not known (trace profile --describe full): the file has 1 GiB")
        largest = max((size for op in Op for size, _ in sizes[op]), default=0)
        wanted = max(footprint or 1024 * MIB, SMALLEST_FILE_NBYTES, 16 * largest)
        nbytes = -(-wanted // MIB) * MIB
    return FioJob(
        sizes,
        read_percent,
        {op: round(100 * profile.random[op]) for op in Op},
        depth,
        think_us,
        rates,
        nbytes,
        tuple(notes),
    )


def _sizes(profile: Profile, op: Op, notes: list[str]) -> list[tuple[int, int]]:
    """Sizes by share: exact ones where most are known, else the upper limits of the histogram's buckets, else the
    sizes with which the bins are measured."""
    n = sum(profile.accesses[op].values())
    if not n:
        return []
    exact = profile.description.get("behaviour", {}).get("sizes", {}).get("dominant", [])
    known = {row["nbytes"]: row["accesses"] for row in exact if row["op"] == op.value}
    if sum(known.values()) >= 0.9 * n:
        return _whole_percents(known)
    histogram = profile.description.get("histograms", {}).get("size", {}).get(op.value)
    if histogram and histogram["limits"] == buckets.SIZE_NBYTES.tolist():
        bounds = [*histogram["limits"], 1 << 20]
        by_size: dict[int, int] = {}
        for bound, count in zip(bounds, histogram["counts"], strict=True):
            size = max(bound // 512 * 512, 512)  # 4095 stands for 2049 to 4095 bytes
            by_size[size] = by_size.get(size, 0) + count
        notes.append(f"{op.value} sizes are the upper limits of the histogram's buckets")
        return _whole_percents({size: count for size, count in by_size.items() if count})
    notes.append(f"{op.value} sizes are those of the size bins")
    return _whole_percents({b.benchmark_nbytes: profile.accesses[op][b.name] for b in SIZE_BINS})


def _whole_percents(counts: dict[int, int]) -> list[tuple[int, int]]:
    """The commonest sizes in whole percents that sum up to 100, by the largest remainders."""
    kept = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_SIZES]
    total = sum(count for _, count in kept)
    exact = [100 * count / total for _, count in kept]
    percents = [int(e) for e in exact]
    by_remainder = sorted(range(len(kept)), key=lambda i: (percents[i] - exact[i], i))
    for i in by_remainder[: 100 - sum(percents)]:
        percents[i] += 1
    return [(size, percent) for (size, _), percent in zip(kept, percents, strict=True) if percent]


def _depth(about: Mapping[str, Any], notes: list[str]) -> int:
    """What DEPTH_SHARE of the accesses did not exceed: exact where the description has it, else the upper limit of
    the histogram's bucket."""
    exact = about.get("percentiles", {}).get("outstanding", {}).get("all", {}).get(f"p{100 * DEPTH_SHARE:g}")
    if exact is not None:
        return int(exact)
    histogram = about.get("histograms", {}).get("outstanding", {}).get("all")
    if histogram is None or not sum(histogram["counts"]):
        notes.append("the trace does not tell how many accesses were outstanding: iodepth is 1")
        return 1
    cumulated = np.cumsum(histogram["counts"])
    place = int(np.searchsorted(cumulated, DEPTH_SHARE * cumulated[-1]))
    if place < len(histogram["limits"]):
        return int(histogram["limits"][place])
    deepest = int(histogram["limits"][-1])
    notes.append(
        f"more than {deepest} were outstanding, the histogram does not tell how many: iodepth is {deepest}"
    )
    return deepest


def _pace(profile: Profile, depth: int, notes: list[str]) -> tuple[int | None, dict[Op, int] | None]:
    about = profile.description
    seconds = about.get("duration_seconds")
    # A disk may have had all its accesses at one moment of a recording; the rate over all of it is known.
    iops = about.get("iops") or (profile.n_accesses / seconds if seconds else None)
    if not iops:
        raise InputError(
            "the profile does not tell how fast the workload was",
            where=profile.name,
            remedy="make the job without its pace: --pace full-speed",
        )
    latency_us = _mean_latency_us(profile)
    think_us = min(max(round(1e6 / iops - (latency_us or 0)), 0), LONGEST_THINK_US)
    if depth == 1 and latency_us is not None:
        return think_us, None
    shares = {op: sum(profile.accesses[op].values()) / profile.n_accesses for op in Op}
    rates = {op: max(round(iops * share), 1) if share else 0 for op, share in shares.items()}
    coarse = [op for op, share in shares.items() if 0 < iops * share < COARSE_IOPS]
    if coarse and think_us >= SHORT_THINK_US:
        notes.append(
            "the pace is kept by thinktime, as fio's rates are whole accesses in a second"
            + (": accesses end before it thinks, so hardly more than one is outstanding" if depth > 1 else "")
        )
        return think_us, None
    notes.append(
        "the pace is kept by rate_iops: "
        + (
            "with several accesses outstanding fio's thinktime would drain them"
            if depth > 1
            else "how long an access takes, which fio's thinktime would have to leave out, the trace does not tell"
        )
    )
    for op in coarse:
        if rates[op] != round(iops * shares[op], 1):
            notes.append(
                f"{op.value}s come at {iops * shares[op]:.2g} a second, in the job at {rates[op]}: "
                "fio's rates are whole accesses in a second"
            )
    return None, rates


def _folded(profile: Profile) -> list[str]:
    """What to know of a job that stands for several disks."""
    n_disks = profile.description.get("n_disks", 1)
    if n_disks < 2:
        return []
    return [
        f"the accesses of {n_disks} disks are one job on one file, at the rate of all and with the depth of one: "
        "this is their profile; of the trace itself each disk becomes a section of its own"
    ]


def _spread(profile: Profile) -> list[str]:
    """What to know of a disk that was used for a part of the recording only."""
    seconds, own = profile.description.get("duration_seconds"), _only_disk(profile).get("duration_seconds")
    if not seconds or own is None or own >= USED_SHARE * seconds:
        return []
    return [
        f"the accesses came within {own:.3g} s of the {seconds:.3g} s that were recorded; the job does them at "
        "their mean rate over the whole recording"
    ]


def _only_disk(profile: Profile) -> Mapping[str, Any]:
    """What the description says of the disk, where there is but one."""
    disks = profile.description.get("disks", {})
    return next(iter(disks.values())) if len(disks) == 1 else {}


def _mean_latency_us(profile: Profile) -> float | None:
    """Of one disk where the full description has it, else the median."""
    disks = profile.description.get("behaviour", {}).get("disks", {}).values()
    means = [disk.get("mean_latency_us") for disk in disks]
    if len(means) == 1 and means[0] is not None:
        return float(means[0])
    median = profile.description.get("percentiles", {}).get("latency_us", {}).get("all", {}).get("p50")
    return float(median) if median is not None else None


def _split(sizes: Sequence[tuple[int, int]]) -> str:
    return ":".join(f"{size}/{percent}" for size, percent in sizes)


def _escaped(file: Path) -> str:
    """fio takes a colon in a file name as the end of the name, and has no way to write what begins a comment.

    Raises:
        InputError: the name cannot stand in a job file; cut short it would be another file's.
    """
    name = str(file)
    if name != name.strip() or any(letter in name for letter in "\n;#"):
        raise InputError(
            "a file name in a fio job has no line ends, no ; and no #, and no blanks around it",
            where=name,
            remedy="name another file, or a link to it",
        )
    return name.replace(":", "\\:")


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
    _refuse_unknown_disks(jobs, files)
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


def _refuse_unknown_disks(jobs: Sequence[DiskJob], files: Mapping[str, Path]) -> None:
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

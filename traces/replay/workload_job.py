"""Create a fio job file from profiles, with one section for each disk of a workload.

A section reproduces sizes, mix, randomness, depth and pace of a profile, on its own file or device. fio's options
take whole percents: sizes by op (``bssplit``), reads (``rwmixread``), random by op (``percentage_random``). One
job cannot have different shares of random accesses by size: it has the share of the op.

fio starts the sections of a file together, each as one process (``stonewall`` would let a section wait for the
previous ones). ``group_reporting`` would sum them up, so it is omitted: each disk is reported separately.
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
from cephfit.traces.readers.fio_iolog import word_of

DEPTH_SHARE = 0.95
"""``iodepth`` is the depth that this share of the accesses did not exceed when they were issued."""

MAX_SIZES = 30
"""Maximum number of sizes per op; fio takes up to 64 (BSSPLIT_MAX)."""

COARSE_IOPS = 10.0
"""Rate of an op below which fio's rates, which are whole accesses per second, are wrong by more than 5 %."""

SHORT_THINK_US = 20_000
"""Pauses of at least this keep a pace even if the latency is unknown: it is a small part of them."""

LONGEST_THINK_US = 4_000_000_000
"""fio stores the think time in 32 bits."""

USED_SHARE = 0.9
"""A note reports a disk with all accesses within less than this share of the recording."""

SMALLEST_FILE_NBYTES = 64 * MIB
"""Large enough that a random offset is rarely within 128 LBN of the previous one."""


@dataclass(frozen=True, slots=True)
class FioJob:
    """The parameters of a job.

    Attributes:
        sizes: By op, (bytes, whole percents that sum up to 100), largest share first.
        read_percent, random_percent: Whole percents; the latter by op.
        iodepth: Maximum number of accesses in flight.
        think_us: Pause between the end of an access and the next one, if it keeps the pace: at depth 1, and for
            slow workloads.
        rates: Accesses per second by op, Poisson, if they keep the pace.
        nbytes: Size of the file.
        notes: What the job does not reproduce.
        align_nbytes: Offsets are multiples of this; None: of the smallest size of the op.
        fsync_every: Number of writes after which a flush follows; None: no flushes.
        think_blocks: Number of accesses before each pause; None: one.
    """

    sizes: dict[Op, list[tuple[int, int]]]
    read_percent: int
    random_percent: dict[Op, int]
    iodepth: int
    think_us: int | None
    rates: dict[Op, int] | None
    nbytes: int
    notes: tuple[str, ...]
    align_nbytes: int | None = None
    fsync_every: int | None = None
    think_blocks: int | None = None

    def options(self, file: Path) -> list[str]:
        """Return the lines of the job's section (see ``job_file``)."""
        return [f"filename={_escaped(file)}", f"size={self.nbytes}", *self.access_options()]

    def access_options(self) -> list[str]:
        """Return the lines about the accesses: all except the file and its size."""
        reads, writes = (self.sizes[op] for op in Op)
        both = bool(reads) and bool(writes)
        lines = [f"rw={'randrw' if both else 'randread' if reads else 'randwrite'}"]
        if both:
            lines.append(f"rwmixread={self.read_percent}")
        lines.append(f"bssplit={_split(reads or writes)},{_split(writes or reads)}")
        lines.append(f"percentage_random={self.random_percent[Op.READ]},{self.random_percent[Op.WRITE]}")
        if self.align_nbytes is not None:
            lines.append(f"blockalign={self.align_nbytes}")
        lines += ["norandommap=1", "randrepeat=1", "random_generator=tausworthe64", f"iodepth={self.iodepth}"]
        if self.think_us:
            lines.append(f"thinktime={self.think_us}us")
            if self.think_blocks is not None:
                lines.append(f"thinktime_blocks={self.think_blocks}")
        if self.rates is not None:
            lines.append(f"rate_iops={self.rates[Op.READ]},{self.rates[Op.WRITE]}")
            lines.append("rate_process=poisson")
        if self.fsync_every is not None:
            lines.append(f"fsync={self.fsync_every}")
        return lines


def job_of(
    profile: Profile, *, paced: bool = True, nbytes: int | None = None, seconds: float | None = None
) -> FioJob:
    """Return the job that reproduces a profile.

    Args:
        profile: Any profile; sizes, depths and times are exact if its description has them.
        paced: Keep the pace of the workload; otherwise run as fast as possible.
        nbytes: Size of the file; None: the footprint of the workload if it is known.
        seconds: Run time; None: unlimited.

    Raises:
        InputError: The profile has no accesses, or the pace is unknown.
    """
    if not profile.n_accesses:
        raise InputError("the profile has no accesses", where=profile.name)
    about = profile.description
    notes = _folded(profile) + (_spread(profile) if paced else [])
    for op in Op:
        if any(profile.accesses[op].values()) and profile.random_share(op) is None:
            notes.append(f"the trace does not show whether {op.value}s are random: they are sequential")
    sizes = {op: _sizes(profile, op, notes) for op in Op}
    n_reads = sum(profile.accesses[Op.READ].values())
    depth = _depth(about, notes)
    think_us, rates = _pace(profile, depth, notes) if paced else (None, None)
    if think_us and seconds and think_us > 1e6 * seconds:
        think_us = round(1e6 * seconds)  # fio does not end a pause early
        notes.append(f"the workload has less than one access in {seconds:g} s; the job begins with one")
    read_percent = round(100 * n_reads / profile.n_accesses)
    if 0 < n_reads < profile.n_accesses and rates is not None:
        read_percent = min(max(read_percent, 1), 99)  # the rates set the mix; fio issues no access of an op at 0 %
    elif 0 < n_reads < profile.n_accesses and read_percent in (0, 100):
        rare = Op.WRITE if read_percent else Op.READ
        notes.append(f"fewer than 0.5 % are {rare.value}s: fio takes whole percents and issues none of them")
    if nbytes is None:
        footprint = about.get("behaviour", {}).get("footprint", {}).get("nbytes")
        if footprint is None:
            notes.append("the footprint is unknown (use trace profile --describe full): the file has 1 GiB")
        largest = max((size for op in Op for size, _ in sizes[op]), default=0)
        required = max(footprint or 1024 * MIB, SMALLEST_FILE_NBYTES, 16 * largest)
        nbytes = -(-required // MIB) * MIB
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
    """Return sizes by share.

    They are exact if most are known, otherwise the upper limits of the histogram's buckets, otherwise the
    benchmark sizes of the bins.
    """
    n = sum(profile.accesses[op].values())
    if not n:
        return []
    exact = profile.description.get("behaviour", {}).get("sizes", {}).get("dominant", [])
    known = {row["nbytes"]: row["accesses"] for row in exact if row["op"] == op.value}
    if sum(known.values()) >= 0.9 * n:
        return whole_percents(known)
    histogram = profile.description.get("histograms", {}).get("size", {}).get(op.value)
    if histogram and histogram["limits"] == buckets.SIZE_NBYTES.tolist():
        bounds = [*histogram["limits"], 1 << 20]
        by_size: dict[int, int] = {}
        for bound, count in zip(bounds, histogram["counts"], strict=True):
            size = max(bound // 512 * 512, 512)  # 4095 means 2049 to 4095 bytes
            by_size[size] = by_size.get(size, 0) + count
        notes.append(f"{op.value} sizes are the upper limits of the histogram's buckets")
        return whole_percents({size: count for size, count in by_size.items() if count})
    notes.append(f"{op.value} sizes are those of the size bins")
    return whole_percents({b.benchmark_nbytes: profile.accesses[op][b.name] for b in SIZE_BINS})


def whole_percents(counts: dict[int, int]) -> list[tuple[int, int]]:
    """Return the most common sizes in whole percents that sum up to 100, by the largest remainders."""
    kept = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_SIZES]
    total = sum(count for _, count in kept)
    exact = [100 * count / total for _, count in kept]
    percents = [int(e) for e in exact]
    by_remainder = sorted(range(len(kept)), key=lambda i: (percents[i] - exact[i], i))
    for i in by_remainder[: 100 - sum(percents)]:
        percents[i] += 1
    return [(size, percent) for (size, _), percent in zip(kept, percents, strict=True) if percent]


def _depth(about: Mapping[str, Any], notes: list[str]) -> int:
    """Return the depth that DEPTH_SHARE of the accesses did not exceed.

    It is exact if the description has it, otherwise the upper limit of the histogram's bucket.
    """
    exact = about.get("percentiles", {}).get("outstanding", {}).get("all", {}).get(f"p{100 * DEPTH_SHARE:g}")
    if exact is not None:
        return int(exact)
    histogram = about.get("histograms", {}).get("outstanding", {}).get("all")
    if histogram is None or not sum(histogram["counts"]):
        notes.append("the trace does not show how many accesses were outstanding: iodepth is 1")
        return 1
    cumulated = np.cumsum(histogram["counts"])
    place = int(np.searchsorted(cumulated, DEPTH_SHARE * cumulated[-1]))
    if place < len(histogram["limits"]):
        return int(histogram["limits"][place])
    deepest = int(histogram["limits"][-1])
    notes.append(
        f"more than {deepest} were outstanding, the histogram does not show how many: iodepth is {deepest}"
    )
    return deepest


def _pace(profile: Profile, depth: int, notes: list[str]) -> tuple[int | None, dict[Op, int] | None]:
    about = profile.description
    seconds = about.get("duration_seconds")
    # A disk may have all its accesses at one moment of a recording; the rate over the whole recording is known.
    iops = about.get("iops") or (profile.n_accesses / seconds if seconds else None)
    if not iops:
        raise InputError(
            "the profile does not contain the rate of the workload",
            where=profile.name,
            remedy="create the job without the pace: --pace full-speed",
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
            "the pace is kept by thinktime, because fio's rates are whole accesses per second"
            + (": accesses end before the pause, so rarely more than one is outstanding" if depth > 1 else "")
        )
        return think_us, None
    notes.append(
        "the pace is kept by rate_iops: "
        + (
            "with several accesses outstanding, fio's thinktime would drain them"
            if depth > 1
            else "thinktime would require the latency, which the trace does not contain"
        )
    )
    for op in coarse:
        if rates[op] != round(iops * shares[op], 1):
            notes.append(
                f"the workload has {iops * shares[op]:.2g} {op.value}s per second, the job {rates[op]}: "
                "fio's rates are whole accesses per second"
            )
    return None, rates


def _folded(profile: Profile) -> list[str]:
    """Return the notes for a job that represents several disks."""
    n_disks = profile.description.get("n_disks", 1)
    if n_disks < 2:
        return []
    return [
        f"the accesses of {n_disks} disks are one job on one file, at the rate of all and with the depth of one, "
        "because this is their common profile; give the trace itself to get one section per disk"
    ]


def _spread(profile: Profile) -> list[str]:
    """Return the notes for a disk that was used only in a part of the recording."""
    seconds, own = profile.description.get("duration_seconds"), _only_disk(profile).get("duration_seconds")
    if not seconds or own is None or own >= USED_SHARE * seconds:
        return []
    return [
        f"the accesses occurred within {_seconds_text(own)} s of the {_seconds_text(seconds)} s that were "
        "recorded; the job issues them at their mean rate over the whole recording"
    ]


def _seconds_text(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 999.5 else f"{seconds:.3g}"


def _only_disk(profile: Profile) -> Mapping[str, Any]:
    """Return the description of the disk if there is only one."""
    disks = profile.description.get("disks", {})
    return next(iter(disks.values())) if len(disks) == 1 else {}


def _mean_latency_us(profile: Profile) -> float | None:
    """Return the mean latency of one disk if the full description has it, otherwise the median latency."""
    disks = profile.description.get("behaviour", {}).get("disks", {}).values()
    means = [disk.get("mean_latency_us") for disk in disks]
    if len(means) == 1 and means[0] is not None:
        return float(means[0])
    median = profile.description.get("percentiles", {}).get("latency_us", {}).get("all", {}).get("p50")
    return float(median) if median is not None else None


def _split(sizes: Sequence[tuple[int, int]]) -> str:
    return ":".join(f"{size}/{percent}" for size, percent in sizes)


def _escaped(file: Path) -> str:
    """Escape a file name for fio.

    fio takes a colon as the end of a file name, and cannot escape the characters that begin a comment.

    Raises:
        InputError: The name is not possible in a job file; fio would shorten it to the name of another file.
    """
    name = str(file)
    if name != name.strip() or any(letter in name for letter in "\n;#"):
        raise InputError(
            "a file name in a fio job cannot contain line ends, ; or #, or begin or end with blanks",
            where=name,
            remedy="name another file, or a link to it",
        )
    return name.replace(":", "\\:")


MAX_SECTIONS = 4096
"""Maximum number of jobs in fio (REAL_MAX_JOBS)."""


@dataclass(frozen=True, slots=True)
class DiskJob:
    """The workload of a disk as a job.

    Attributes:
        disk: Its name; None if the trace is of one disk only.
        n_accesses: Number of its accesses.
        job: The job that reproduces them.
    """

    disk: str | None
    n_accesses: int
    job: FioJob


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its name for fio, and the file or device of the job."""

    name: str
    file: Path
    of: DiskJob


def sections_of(jobs: Sequence[DiskJob], *, file: Path, files: Mapping[str, Path]) -> list[Section]:
    """Return a section for each job, no two of them on the same file.

    Args:
        jobs: Of one workload; at least one.
        file: File of the only job. Of several jobs, each gets a file in the same folder with the disk in its name.
        files: Files by disk that replace these.

    Raises:
        InputError: A file belongs to no disk or to two; ``file`` is one device for several disks; or there are
            more disks than fio takes jobs.
    """
    _refuse_unknown_disks(jobs, files)
    if len(jobs) > MAX_SECTIONS:
        raise InputError(
            f"fio takes at most {MAX_SECTIONS} jobs, and the trace has {len(jobs)} disks",
            remedy="choose some of them: --disk",
        )
    if len(jobs) == 1:
        return [Section("workload", files.get(jobs[0].disk or "", file), jobs[0])]
    words: dict[str, str] = {}
    for job in jobs:
        words[job.disk or ""] = word_of(job.disk or "", set(words.values()))
    if file.exists() and not file.is_file() and any(job.disk not in files for job in jobs):
        raise InputError(
            f"{len(jobs)} disks cannot share this device",
            where=f"--file {file}",
            remedy=f"give each disk its own: --disk-file {jobs[0].disk} DEVICE ..., or choose one of them: --disk "
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
    """Return the text of the job file.

    Args:
        sections: At least one.
        title: Name of the workload.
        seconds: Run time of each section.
    """
    shared = shared_notes(sections)
    lines = [f"# The workload {_one_line(title)}, as profiled by cephfit."]
    if len(sections) > 1:
        total_nbytes = sum(section.of.job.nbytes for section in sections)
        is_paced = any(section.of.job.think_us or section.of.job.rates for section in sections)
        pace = "at the recorded pace of its disk" if is_paced else "as fast as possible"
        lines += [
            f"# Each of its {len(sections)} disks is a section. fio runs all sections at the same time, each on",
            f"# its own file (in total {total_nbytes} bytes) and {pace}.",
            f"# To run one disk alone: fio --section={sections[0].name} THIS_FILE",
            "# To run the disks one after the other: add stonewall=1 to each section.",
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
    """Return the notes that are common to all jobs."""
    return [note for note in sections[0].of.job.notes if all(note in s.of.job.notes for s in sections)]


def _one_line(text: str) -> str:
    """Return a text on one line, so that a comment stays a comment with any name."""
    return " ".join(text.split())


def _refuse_unknown_disks(jobs: Sequence[DiskJob], files: Mapping[str, Path]) -> None:
    known = [job.disk for job in jobs if job.disk is not None]
    for disk in files:
        if disk not in known:
            raise InputError(
                f"there is no job for disk {disk!r}",
                where=f"--disk-file {disk}",
                remedy=f"the disks are {', '.join(known[:64])}" if known else "give the file as --file",
            )


def _refuse_shared(sections: Sequence[Section]) -> None:
    seen: dict[Path, str] = {}
    for section in sections:
        place, disk = section.file.resolve(), section.of.disk or ""
        if place in seen:
            raise InputError(
                f"disks {seen[place]} and {disk} would overwrite each other",
                where=str(section.file),
                remedy="give each its own file or device: --disk-file DISK FILE",
            )
        seen[place] = disk

"""Recordings: which trace files belong together, and options for files that do not describe themselves."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.traces import opening
from cephfit.traces.capturing import capture
from cephfit.traces.stream import STANDARD_INPUT

PER_CPU = re.compile(r"(?P<stem>.*)\.blktrace\.(?P<number>\d+)(?:\.(?:gz|xz|bz2|zst))?")
"""The name of a file that blktrace writes for one CPU."""


def per_cpu(file: Path) -> re.Match[str] | None:
    """Match the name of a file or a URL with ``PER_CPU``. The query of a URL is not part of the name."""
    return PER_CPU.fullmatch(Path(opening.display_name(file)).name)


@dataclass(frozen=True, slots=True)
class Recording:
    """Files that one recorder wrote at one time: a single file, or blktrace's files for the CPUs of one device."""

    name: str
    files: tuple[Path, ...]


def recordings_of(paths: Sequence[Path]) -> list[Recording]:
    """Group files into recordings.

    A folder means the blktrace files in it. A name without a file (``sda``) means ``sda.blktrace.*``. The record
    file that a capture wrote is not a trace; it may be named too, as ``trace/*`` does.

    Raises:
        InputError: a folder contains no blktrace files, or a file is there twice: plain and compressed.
    """
    files: list[Path] = []
    for path in [p for p in paths if not p.name.endswith(capture.SUFFIX)] or paths:
        files.extend(_expanded(opening.local(path)))
    groups: dict[tuple[Path, str, int], list[Path]] = {}
    seen = Counter[Path]()
    for file in dict.fromkeys(files):
        path = Path(opening.display_name(file))
        if match := per_cpu(file):
            # URLs that differ only in their queries are not two CPUs of one recording.
            groups.setdefault((path.parent, match["stem"], seen[path]), []).append(file)
            seen[path] += 1
        else:
            groups.setdefault((file.parent, file.name, 0), []).append(file)
    # URLs that differ only in their queries have one name in results.
    shown = [Path(opening.display_name(folder / stem)) for folder, stem, _ in groups]
    stems, wholes = Counter(path.name for path in shown), Counter[Path]()
    recordings = []
    for path, members in zip(shown, groups.values(), strict=True):
        _refuse_copies(members)
        wholes[path] += 1
        name = path.name if stems[path.name] == 1 else str(path)
        recordings.append(Recording(name if wholes[path] == 1 else f"{name} ({wholes[path]})", tuple(members)))
    return recordings


def _refuse_copies(files: Sequence[Path]) -> None:
    """Refuse two files of one CPU in one recording: each event would count twice."""
    seen: dict[int, Path] = {}
    for file in files:
        match = per_cpu(file)
        if match and (other := seen.setdefault(int(match["number"]), file)) is not file:
            raise InputError(
                f"two files have the events of CPU {match['number']} of one recording",
                where=", ".join(map(opening.display_name, (other, file))),
                remedy="give only one of them, or delete the copy: each event would count twice",
            )


def _expanded(path: Path) -> list[Path]:
    if path == STANDARD_INPUT:
        return [path]
    if path.is_dir():
        found = _numbered(path, "")
        if not found:
            raise InputError(
                "there are no blktrace files (NAME.blktrace.0 ...) in this folder",
                where=str(path),
                remedy="name the trace files themselves",
            )
        return found
    if not path.exists() and path.name:
        return _numbered(path.parent, path.name) or [path]
    return [path]


def _numbered(folder: Path, stem: str) -> list[Path]:
    found = [(m, f) for f in folder.glob("*") if (m := PER_CPU.fullmatch(f.name)) and f.is_file()]
    if stem:
        found = [(m, f) for m, f in found if m["stem"] == stem]
    return [f for _, f in sorted(found, key=lambda pair: (pair[0]["stem"], int(pair[0]["number"]), pair[1]))]


def omitted_siblings(recording: Recording) -> list[str]:
    """Name the blktrace files of the same recording that exist in the same folder but were not given."""
    first = recording.files[0]
    match = per_cpu(first)
    if match is None:
        return []
    read = {int(found["number"]) for file in recording.files if (found := per_cpu(file))}
    others = ((f.name, per_cpu(f)) for f in _numbered(first.parent, match["stem"]))
    missing = [name for name, found in others if found and int(found["number"]) not in read]
    return [f"other CPUs of the same recording were not read: {', '.join(missing)}"] if missing else []


def device_of(recording: Recording) -> str:
    """Return the device that blktrace's file names contain; empty for other files."""
    match = per_cpu(recording.files[0])
    return match["stem"] if match else ""


def by_device(recordings: Sequence[Recording]) -> list[tuple[Recording, ...]]:
    """Group consecutive parts by device, where all recordings are parts of one trace."""
    parts: dict[str, list[Recording]] = {}
    for recording in recordings:
        parts.setdefault(device_of(recording), []).append(recording)
    return [tuple(its) for its in parts.values()]


def consecutive_files(recordings: Sequence[Recording]) -> list[tuple[Path, ...]]:
    """Return the files to read as one, where recordings are consecutive parts of one trace.

    These are the files of each CPU of a device, in the order of the CPU numbers.
    """
    rows: dict[tuple[str, int], list[Path]] = {}
    for recording in recordings:
        for file in recording.files:
            match = per_cpu(file)
            rows.setdefault((match["stem"], int(match["number"])) if match else ("", -1), []).append(file)
    return [tuple(rows[key]) for key in sorted(rows)]


def are_rereadable(recordings: Sequence[Recording]) -> bool:
    """Return whether all can be read twice: no pipe is among them."""
    return all(file.is_file() or opening.url_of(file) for r in recordings for file in r.files)


def total_nbytes(recordings: Sequence[Recording]) -> float | None:
    """Return the total size of all files in bytes; None where it is unknown before reading."""
    files = [f for r in recordings for f in r.files]
    if STANDARD_INPUT in files or any(opening.url_of(f) for f in files):
        return None
    return float(sum(f.stat().st_size for f in files))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading. All are None where the content of the trace suffices.

    Attributes:
        assume_op: the op of all accesses, for a format without ops.
        columns: the columns of a delimited file, as ``named_columns.layout_of`` reads them.
        blkparse_format: the ``-f`` that blkparse was given.
    """

    assume_op: Op | None = None
    columns: str | None = None
    blkparse_format: str | None = None

    @property
    def format_name(self) -> str | None:
        """Return the format that the options imply; None: they imply none."""
        return "columns" if self.columns else "blkparse-f" if self.blkparse_format else None

    def format_with(self, asked: str | None) -> str | None:
        """Return the format that the options and ``--format`` name; None: neither names one.

        Raises:
            InputError: they name different formats.
        """
        implied = self.format_name
        if implied and asked and asked != implied:
            option = "--columns" if self.columns else "--blkparse-format"
            raise InputError(
                f"{option} implies the format {implied}, but --format names {asked}",
                where=f"--format {asked}",
                remedy="use only one of the two options",
            )
        return implied or asked


def read_options(assume_op: str | None, columns: str | None, blkparse_format: str | None) -> ReadOptions:
    """Build ``ReadOptions`` from the words of a command line.

    Raises:
        InputError: two of them exclude each other.
    """
    if columns and blkparse_format:
        raise InputError(
            "--columns and --blkparse-format exclude each other", remedy="give the one that describes the file"
        )
    return ReadOptions(Op(assume_op) if assume_op else None, columns, blkparse_format)


@contextmanager
def parts_hint(files: Sequence[Path], *, parts: bool) -> Iterator[None]:
    """Add a hint about parts to an error in one of several files.

    Args:
        files: that are read within.
        parts: whether they are read as consecutive parts of one trace. The hint is then that a part may be missing
            or in the wrong place; else that ``--parts`` may be missing.

    Raises:
        InputError: as raised within, with the hint in its remedy.
    """
    try:
        yield
    except InputError as error:
        if len(files) == 1 or not error.where.startswith(tuple(map(opening.display_name, files))):
            raise
        if parts:
            hint = "or, if a part is missing or misplaced, give all parts in their order"
        else:
            hint = "or, if the files are consecutive parts of one trace, add --parts"
        raise InputError(error.what, where=error.where, remedy=f"{error.remedy}; {hint}") from None


def across_recordings(disks: Collection[str], stacked: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the pairs of ``stacked`` as disks of several recordings of one machine.

    The recording of the lower disk shows that an access came from dm. It names the upper disk by its device number
    only: the accesses of the upper disk may be in another recording.

    Args:
        disks: All disks that have accesses, ``RECORDING/MAJOR,MINOR``.
        stacked: (upper, lower) pairs, named by the recording in which they were seen.

    Returns:
        The pairs. A disk that has no accesses in its own recording is replaced by all disks with the same device
        number.
    """
    by_number: dict[str, list[str]] = {}
    for disk in disks:
        by_number.setdefault(_number(disk), []).append(disk)

    def meant(disk: str) -> list[str]:
        return [disk] if disk in disks else by_number.get(_number(disk), [])

    return frozenset((a, b) for upper, lower in stacked for a in meant(upper) for b in meant(lower))


def _number(disk: str) -> str:
    return disk.rpartition("/")[2]

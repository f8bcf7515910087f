"""Read the words of ``measurement`` that only the engine ``micro`` has: operations, and the files they work on."""

from collections.abc import Mapping

from cephfit.core.units import KIB, format_nbytes
from cephfit.core.values.cells import SIZE_BINS, Cell, FileCell, FileOperation, FileSet, SizeBin
from cephfit.core.values.measurement import DSYNC, MICRO, Measurement
from cephfit.core.yaml_lines import Located, nearest

FILE_WORDS = ("operations", "files", "file_size", "files_per_folder", "filesystem")
_BLOCK_WORDS = ("patterns", "cells", "ioengine", "steady", "ramp_seconds")
_FILESYSTEMS = ("ext4", "xfs")
_PER_FOLDER = 25
_MOST_FILES = 1_000_000
_ROOM = 3
"""Size of a volume relative to its files: appending doubles them, and a nearly full file system is slower."""
_LEAST_ALIGNED = 4 * KIB


def read_file_cells(parts: Mapping[str, Located]) -> tuple[Cell, ...]:
    """Return the operations that are measured; those with data in each of ``sizes``, 4K without it.

    Raises:
        InputError: names file and line.
    """
    for word in _BLOCK_WORDS:
        if word in parts:
            parts[word].refuse(f"{MICRO} does not support {word}", "remove it; `operations` says what is measured")
    words = [str(operation) for operation in FileOperation]
    named = each_once(parts["operations"], "file operation", words) if "operations" in parts else words
    known = {size.name: size for size in SIZE_BINS}
    sizes = [
        known[name] for name in (each_once(parts["sizes"], "size", list(known)) if "sizes" in parts else ["4K"])
    ]
    cells = [_cells_of(operation, sizes) for operation in FileOperation if operation.value in named]
    return tuple(cell for some in cells for cell in some)


def _cells_of(operation: FileOperation, sizes: list[SizeBin]) -> list[Cell]:
    return [FileCell.of(operation, size) for size in (sizes if operation.has_data else sizes[:1])]


def each_once(entry: Located, what: str, right: list[str]) -> list[str]:
    """Return the words of a list in which none is repeated.

    Raises:
        InputError: another word than those of ``right``, a repetition, or none at all.
    """
    words: list[str] = []
    for item in entry.items():
        word = str(item.value)
        if word not in right:
            item.refuse(f"{word!r} is not a {what}", nearest(word, right))
        if word in words:
            item.refuse(f"{what} {word} is given twice", "name it once")
        words.append(word)
    if not words:
        entry.refuse(f"no {what} is given", f"choose from: {', '.join(right)}")
    return words


def read_file_set(parts: Mapping[str, Located], cells: tuple[Cell, ...], volume_nbytes: int) -> FileSet:
    """Return the files of each client.

    Raises:
        InputError: names file and line.
    """
    for word in ("files", "file_size"):
        if word not in parts:
            parts["engine"].refuse(
                f"engine {MICRO} lacks {word!r}", f"add a line `{word}: ...` to the measurement"
            )
    files = FileSet(
        n_files=parts["files"].whole(least=1, most=_MOST_FILES),
        file_nbytes=parts["file_size"].nbytes(),
        per_folder=parts["files_per_folder"].whole(least=1) if "files_per_folder" in parts else _PER_FOLDER,
        filesystem=parts["filesystem"].word(_FILESYSTEMS) if "filesystem" in parts else _FILESYSTEMS[0],
    )
    largest = max(_LEAST_ALIGNED, *(cell.size.benchmark_nbytes for cell in cells))
    if files.file_nbytes < largest or files.file_nbytes % largest:
        parts["file_size"].refuse(
            f"a file of {parts['file_size'].value} does not hold whole accesses of {format_nbytes(largest)}",
            f"make it a multiple of {format_nbytes(largest)}",
        )
    if volume_nbytes < _ROOM * files.nbytes:
        parts["volume_size"].refuse(
            f"{files.n_files} files of {format_nbytes(files.file_nbytes)} need a volume of "
            f"{format_nbytes(_ROOM * files.nbytes)}, {_ROOM} times their size",
            "make it larger, or the files fewer or smaller",
        )
    return files


def refuse_unknown_load(measurement: Measurement, parts: Mapping[str, Located]) -> None:
    """Refuse values of a load, or of the measurement itself, that operations on files do not have.

    Raises:
        InputError: names file and line.
    """
    for word in ("read_pct", "rate", "rate_iops", "align", "patterns"):
        if word in parts:
            parts[word].refuse(f"{MICRO} does not support {word}", "remove it")
    if measurement.sync == DSYNC and "sync" in parts:
        parts["sync"].refuse(
            "names of files cannot be opened with O_DSYNC", "write fsync, or every 8: a flush after 8 operations"
        )

"""What is measured: the 20 cells of size bins and patterns, and operations on files as cells of a sweep.

The cells are those of Meyer (2017, Table 2.1 and section 2.2.1). Operations on files (Hwang 2014, chapters 4 and
5) are not among them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.units import KIB, MIB, format_nbytes

RANDOM_THRESHOLD_LBN = 128
"""An access is random when it starts more than this many LBN from the end of the previous access of its kind."""


class Op(StrEnum):
    """What an access does."""

    READ = "read"
    WRITE = "write"


class Pattern(StrEnum):
    """fio's names; the first two are sequential."""

    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"

    @property
    def op(self) -> Op:
        return Op.READ if self in (Pattern.READ, Pattern.RANDREAD) else Op.WRITE

    @property
    def is_random(self) -> bool:
        return self in (Pattern.RANDREAD, Pattern.RANDWRITE)

    @classmethod
    def of(cls, op: Op, *, is_random: bool) -> "Pattern":
        return cls(f"rand{op}" if is_random else op.value)


@dataclass(frozen=True, slots=True)
class SizeBin:
    """A size bin: accesses of at most ``upper_inclusive`` bytes that are in no smaller bin.

    Attributes:
        name: ``4K`` ... ``32M``.
        benchmark_nbytes: the block size with which fio measures the bin's baselines.
        upper_inclusive: bytes; None for the last bin, which has no upper bound.
    """

    name: str
    benchmark_nbytes: int
    upper_inclusive: int | None

    def __str__(self) -> str:
        return self.name


SIZE_BINS: tuple[SizeBin, ...] = (
    SizeBin("4K", 4 * KIB, 8 * KIB),
    SizeBin("32K", 32 * KIB, 48 * KIB),
    SizeBin("128K", 128 * KIB, 256 * KIB),
    SizeBin("1M", MIB, 4 * MIB),
    SizeBin("32M", 32 * MIB, None),
)
"""Table 2.1 of the thesis."""

SIZE_BIN_EDGES: tuple[int, ...] = tuple(b.upper_inclusive for b in SIZE_BINS if b.upper_inclusive is not None)
"""Inclusive upper bounds in bytes of all bins except the last: ``numpy.searchsorted(edges, nbytes,
side="left")``."""


def size_bin(name: str, *, where: str = "") -> SizeBin:
    """Return the bin called ``name``.

    Raises:
        InputError: there is no such bin.
    """
    for candidate in SIZE_BINS:
        if candidate.name == name:
            return candidate
    names = ", ".join(b.name for b in SIZE_BINS)
    raise InputError(f"{name!r} is not a size bin", where=where, remedy=f"the size bins are {names}")


@dataclass(frozen=True, slots=True)
class Cell:
    """One of the 20 cells: a size bin and a pattern."""

    size: SizeBin
    pattern: Pattern

    def __hash__(self) -> int:
        # Millions of samples are sorted into tables by cell: this takes a fraction of the default's time.
        return hash((self.size.name, str.__hash__(self.pattern)))

    def __str__(self) -> str:
        return f"{self.size.name}-{self.pattern.value}"

    @classmethod
    def parse(cls, text: str, *, where: str = "") -> "Cell":
        """Read ``4K-randread``.

        Raises:
            InputError: no such size bin or pattern.
        """
        if text in _CELLS_BY_NAME:
            return _CELLS_BY_NAME[text]
        size, _, pattern = text.partition("-")
        if pattern not in list(Pattern):
            raise InputError(
                f"{text!r} is not a cell",
                where=where,
                remedy="a cell is a size bin and a fio pattern, such as 4K-randread",
            )
        return cls(size_bin(size, where=where), Pattern(pattern))


CELLS: tuple[Cell, ...] = tuple(Cell(size, pattern) for size in SIZE_BINS for pattern in Pattern)
_CELLS_BY_NAME = {str(cell): cell for cell in CELLS}


@dataclass(frozen=True, slots=True, order=True)
class LoadedCell:
    """A size and pattern of any kind under a load: what distinguishes rates that are measured next to each other.

    Attributes:
        nbytes: block size.
        pattern: fio's.
        iodepth: I/Os that each client keeps in flight.
        align_nbytes: random accesses start at multiples of this many bytes; 0: of their own size. Sequential
            accesses that are not aligned to their own size start at such a multiple.
        sync: how writes are made durable: empty, ``fsync``, ``dsync``, or ``every N`` (a flush after N writes).
    """

    nbytes: int
    pattern: Pattern
    iodepth: int = 1
    align_nbytes: int = 0
    sync: str = ""

    def __str__(self) -> str:
        properties = [f"depth {self.iodepth}"] if self.iodepth > 1 else []
        properties += [f"aligned to {format_nbytes(self.align_nbytes)}"] if self.align_nbytes else []
        properties += [self.sync] if self.sync else []
        return f"{format_nbytes(self.nbytes)}-{self.pattern}" + (
            f" ({', '.join(properties)})" if properties else ""
        )

    @property
    def bin_cell(self) -> Cell:
        """The cell of the 20 that the size falls into."""
        upper = (b for b in SIZE_BINS if b.upper_inclusive is None or self.nbytes <= b.upper_inclusive)
        return Cell(next(upper), self.pattern)

    @classmethod
    def measured(
        cls, nbytes: int, pattern: Pattern, *, iodepth: int = 1, align_nbytes: int = 0, sync: str = ""
    ) -> "LoadedCell":
        """Return the cell of a measurement, so that measurements that do the same have the same cell.

        An alignment of the block size or more counts as the own size. Reads have no ``sync``: there is nothing to
        make durable.
        """
        align = align_nbytes if align_nbytes < nbytes else 0
        return cls(nbytes, pattern, iodepth, align, sync if pattern.op is Op.WRITE else "")


NO_SIZE = SizeBin("", 0, 0)
"""The size of operations that move no data of a file."""

ASKED = "asked"
"""Key of a sample's evidence: ``operations`` and ``nbytes`` that the program did."""
VOLUME_MOVED = "volume"
"""Key of a sample's evidence: ``read_nbytes`` and ``written_nbytes`` of the client's volume."""
MOVED = "moved"
"""Key of the evidence of a run's first client: bytes on network and disks, for all clients together."""


class FileOperation(StrEnum):
    """What is done with a file, or with the names of files."""

    KEEP_READ = "keep-read"
    """Read at a random place of a file that stays open."""
    KEEP_WRITE = "keep-write"
    OPEN_READ = "open-read"
    """Open a file, read at a random place, and close it."""
    OPEN_WRITE = "open-write"
    APPEND = "append"
    """Open a file, write at its end, and close it."""
    CREATE = "create"
    STAT = "stat"
    LIST = "list"
    """Read the names in one folder."""
    RENAME = "rename"
    DELETE = "delete"

    @property
    def has_data(self) -> bool:
        """Whether it reads or writes data of a file, in a size."""
        return self in _WITH_DATA

    @property
    def op(self) -> Op:
        """Whether it only reads."""
        return Op.READ if self in _READS else Op.WRITE


_WITH_DATA = (
    *(FileOperation.KEEP_READ, FileOperation.KEEP_WRITE, FileOperation.OPEN_READ, FileOperation.OPEN_WRITE),
    FileOperation.APPEND,
)
_READS = (FileOperation.KEEP_READ, FileOperation.OPEN_READ, FileOperation.STAT, FileOperation.LIST)


@dataclass(frozen=True, slots=True)
class FileCell(Cell):
    """An operation on files, with the size of its accesses: a cell that is not one of the 20."""

    operation: FileOperation

    def __str__(self) -> str:
        return f"{self.size.name}-{self.operation}" if self.operation.has_data else self.operation.value

    @classmethod
    def of(cls, operation: FileOperation, size: SizeBin = NO_SIZE) -> "FileCell":
        """Return the cell of an operation; only operations with data have a size."""
        is_random = operation.has_data and operation is not FileOperation.APPEND
        chosen = size if operation.has_data else NO_SIZE
        return cls(chosen, Pattern.of(operation.op, is_random=is_random), operation)


def stored_cell(size: str, pattern: str, *, where: str) -> Cell:
    """Return the cell of a stored sample: one of the 20, or an operation on files.

    Raises:
        InputError: there is no such cell.
    """
    if pattern in list(FileOperation):
        operation = FileOperation(pattern)
        return FileCell.of(operation, size_bin(size, where=where) if operation.has_data else NO_SIZE)
    return Cell.parse(f"{size}-{pattern}", where=where)


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of each client.

    Attributes:
        n_files: their number, before the operation.
        file_nbytes: size of each.
        per_folder: files in each folder.
        filesystem: made on the client's volume, if the target itself exports no files.
    """

    n_files: int
    file_nbytes: int
    per_folder: int
    filesystem: str

    @property
    def nbytes(self) -> int:
        """Data of all files of one client."""
        return self.n_files * self.file_nbytes

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        return (
            f"{self.n_files} files of {format_nbytes(self.file_nbytes)}, {self.per_folder} in each folder, "
            f"{self.filesystem} where the target exports no files"
        )


def require_file_cell(cell: Cell) -> FileCell:
    """Return a cell as an operation on files.

    Raises:
        InputError: it is one of the 20 cells.
    """
    if not isinstance(cell, FileCell):
        raise InputError(
            f"{cell} is a cell of block devices, not an operation on files",
            where="measurement.engine",
            remedy="use engine: fio, or name operations such as create",
        )
    return cell

"""Operations on files as cells of a sweep, and the files that they work on (Hwang 2014, chapters 4 and 5).

They are not among the 20 cells of the block profile: no prediction uses them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.units import format_nbytes
from cephfit.core.values.cells import Cell, Op, Pattern, SizeBin, size_bin

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

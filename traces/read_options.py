"""Options that describe traces whose content does not describe itself."""

from dataclasses import dataclass

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op


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

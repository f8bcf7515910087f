"""What a person says about traces whose content does not say it."""

from dataclasses import dataclass

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All None: the content tells everything.

    Attributes:
        assume_op: of the accesses of a format without one.
        columns: of a delimited file of the person's own, as ``columns.layout_of`` reads it.
        blkparse_format: the ``-f`` that blkparse was given.
    """

    assume_op: Op | None = None
    columns: str | None = None
    blkparse_format: str | None = None

    @property
    def format_name(self) -> str | None:
        """The format that the options imply."""
        return "columns" if self.columns else "blkparse-f" if self.blkparse_format else None

    def format_with(self, asked: str | None) -> str | None:
        """The format that they and ``--format`` say; None: neither does.

        Raises:
            InputError: they say different ones.
        """
        implied = self.format_name
        if implied and asked and asked != implied:
            option = "--columns" if self.columns else "--blkparse-format"
            raise InputError(
                f"{option} says how the lines are, --format {asked} that they are of another form",
                where=f"--format {asked}",
                remedy="give one of the two",
            )
        return implied or asked

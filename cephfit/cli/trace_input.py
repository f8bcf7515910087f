"""Arguments that are a profile or a trace, told by their content, and how a trace is to be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cephfit.cli.trace_reading import disks_option, read_options, reading_options
from cephfit.profile import Profile
from cephfit.protocols import Progress

if TYPE_CHECKING:
    from cephfit.traces.access_source import AccessSource
    from cephfit.traces.read_options import ReadOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class TraceInput:
    """How a trace is to be read.

    Attributes:
        format_name: None to tell by content.
        action: event of the block layer that counts, ``Q`` or ``D``.
        options: what the content does not say.
        describe: ``fast`` or ``full``; None: full, but of a trace of too many disks.
        disks: count only these; empty: all.
    """

    format_name: str | None
    action: str
    options: ReadOptions
    describe: str | None = "fast"
    disks: tuple[str, ...] = ()

    def profile(self, path: Path, progress: Progress) -> Profile:
        """A profile file's profile, or that of a trace.

        Raises:
            InputError: it is neither, or damaged, or a profile of other disks than were asked for.
        """
        from cephfit.traces import profile_files
        from cephfit.traces.readers.block_layer import Action

        return self._profile_file(path) or profile_files(
            [path],
            format_name=self.format_name,
            action=Action(self.action),
            disks=self.disks,
            full=None if self.describe is None else self.describe == "full",
            options=self.options,
            progress=progress,
        )

    def profiles_by_disk(self, path: Path, progress: Progress) -> list[Profile]:
        """A profile file's profile, of however many disks it is, or that of each disk of a trace.

        Raises:
            InputError: as ``profile``.
        """
        from cephfit.traces import profiles_by_disk
        from cephfit.traces.readers.block_layer import Action

        found = self._profile_file(path)
        if found is not None:
            return [found]
        return profiles_by_disk(
            [path],
            format_name=self.format_name,
            action=Action(self.action),
            disks=self.disks,
            full=self.describe != "fast",
            options=self.options,
            progress=progress,
        )

    def _profile_file(self, path: Path) -> Profile | None:
        from cephfit.cli.map import read_profile
        from cephfit.traces.description.shape import refuse_other_shapes

        if self.format_name is not None or self.options.format_name is not None or not _looks_like_a_profile(path):
            return None
        found = read_profile(path)
        refuse_other_shapes(found.description, where=str(path))
        self._refuse_other_disks(found, path)
        return found

    def _refuse_other_disks(self, found: Profile, path: Path) -> None:
        from cephfit.errors import InputError

        if self.disks and set(found.description.get("disks", {})) != set(self.disks):
            raise InputError(
                "a profile covers all its disks together",
                where=f"{path}, --disk {self.disks[0]}",
                remedy="give the trace, or make a profile of the disk: cephfit trace profile TRACE --disk "
                f"{self.disks[0]} -o profile.json",
            )

    def accesses(
        self, files: Sequence[Path], *, disk: str | None, progress: Progress
    ) -> tuple[AccessSource, Mapping[str, Any]]:
        """The accesses of a recording of one disk, or of all disks of one level, and the disks that are left out
        because another one's accesses are theirs.

        Raises:
            InputError: there is no such trace, or not one only.
        """
        from cephfit.traces.access_source import AccessSource, left_out
        from cephfit.traces.readers.block_layer import Action

        action = Action(self.action)
        others = (
            left_out(files, format_name=self.format_name, action=action, options=self.options, progress=progress)
            if disk is None
            else {}
        )
        source = AccessSource(
            files,
            format_name=self.format_name,
            action=action,
            disk=disk,
            without=others,
            options=self.options,
        )
        return source, others


def trace_options(command: _Command) -> _Command:
    """Adds all that says how a trace is to be read, given to the command as ``trace``, a ``TraceInput``."""
    for option in (
        click.option(
            "--action",
            type=click.Choice(["Q", "D"]),
            default="Q",
            show_default=True,
            help="For a trace: block-layer event that counts as an access, Q (queued) or D (issued to the disk).",
        ),
        click.option(
            "--format",
            "format_name",
            metavar="FORMAT",
            help="Format of the trace.  [default: detected from its content]",
        ),
    ):
        command = option(command)

    @wraps(command)
    def with_trace(
        *,
        format_name: str | None,
        action: str,
        assume_op: str | None,
        columns: str | None,
        blkparse_format: str | None,
        describe: str | None = "fast",
        disks: tuple[str, ...] = (),
        **others: Any,
    ) -> Any:
        options = read_options(assume_op, columns, blkparse_format)
        return command(trace=TraceInput(format_name, action, options, describe, disks), **others)

    return reading_options(with_trace)  # type: ignore[return-value]


def description_option(command: _Command) -> _Command:
    """Adds ``--describe`` and ``--disk``, for commands that make a profile of a trace; stands below
    ``trace_options``."""
    return click.option(
        "--describe",
        type=click.Choice(["fast", "full"]),
        help="How much of a trace to describe; fast leaves out behaviour over time and over the disk "
        "[default: full, for up to 32 disks].",
    )(disks_option(command))


def _looks_like_a_profile(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(4096)
    return head.lstrip().startswith(b"{") and b'"schema_version"' in head

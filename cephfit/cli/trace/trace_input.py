"""Arguments that are a profile or a trace (detected from the content), and all options for reading traces.

This module also handles the place of a captured trace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cephfit.cli.options.completers import trace_formats
from cephfit.core.errors import InputError
from cephfit.core.protocols import Progress
from cephfit.core.values.profile import Profile
from cephfit.traces.recordings import parts_hint, read_options

if TYPE_CHECKING:
    from cephfit.traces.access_source import AccessSource
    from cephfit.traces.recordings import ReadOptions


_Command = TypeVar("_Command", bound=Callable[..., Any])

_COLUMNS_HELP = """Read a delimited file with these columns, in this order: time:UNIT (ns, us, ms, s,
filetime), op[:READ/WRITE[/SKIP]] (the file's words for them, with | between several; others are errors),
action:WORD (count only rows with this word), offset:UNIT and length:UNIT (bytes, lbn, sectors, kib, mib,
pages), disk, latency:UNIT, - to ignore a column. If the file has no such column: op=read,
op=write, length=4096. sep=comma, semicolon, tab, pipe or space. Example:
 time:us,op:0/1,offset:bytes,length:bytes. A bare list of block numbers: offset:lbn,op=read,length=4096"""


class TracePath(click.Path):
    """A file, a folder or a URL; a URL stays unchanged."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ":" not in str(value):
            return super().convert(value, param, ctx)
        from cephfit.traces import opening

        return opening.path_of(str(value))


def reading_options(command: _Command) -> _Command:
    """Add ``--assume-op``, ``--columns`` and ``--blkparse-format``."""
    for option in (
        click.option(
            "--blkparse-format",
            metavar="FORMAT",
            help="Read the output of `blkparse -f FORMAT`, such as '%T.%t,%d,%a,%S,%n\\n'.",
        ),
        click.option("--columns", metavar="COLUMNS", help=" ".join(_COLUMNS_HELP.split())),
        click.option(
            "--assume-op",
            type=click.Choice(["read", "write"]),
            help="Count all accesses as reads or writes, if the format does not distinguish them.",
        ),
    ):
        command = option(command)
    return command


def disks_option(command: _Command) -> _Command:
    """Add ``--disk``, passed to the command as ``disks``."""
    return click.option("--disk", "disks", multiple=True, help="For a trace: count this disk only. Repeatable.")(
        command
    )


def parts_option(command: _Command) -> _Command:
    """Add ``--parts``."""
    return click.option(
        "--parts", is_flag=True, help="The files are consecutive parts of one trace, in this order."
    )(command)


@contextmanager
def trace_place(text: str) -> Iterator[Path]:
    """Yield the place of a captured trace: a folder, or the base name of the files.

    A name with a slash at its end is a folder, which is created if needed, and removed again if it stays empty.

    Raises:
        InputError: The folder cannot be created.
    """
    place = Path(text)
    created = text.endswith(os.sep) and not place.is_dir()
    if created:
        try:
            place.mkdir(parents=True)
        except OSError as error:
            raise InputError(
                f"the folder cannot be created: {error.strerror}", where=text, remedy="choose another"
            ) from None
    try:
        yield place
    finally:
        if created:
            with suppress(OSError):
                place.rmdir()


@dataclass(frozen=True, slots=True)
class TraceInput:
    """Options for reading a trace.

    Attributes:
        format_name: Name of the format; None: detect it from the content.
        action: The event of the block layer that counts, ``Q``, ``D`` or ``C``; None: the trace decides.
        options: What the content does not contain.
        describe: ``fast`` or ``full``; None: full, except for a trace of too many disks.
        disks: Count only these disks; empty: all.
        parts: Several files are consecutive parts of one trace; otherwise they are simultaneous recordings.
    """

    format_name: str | None
    action: str | None
    options: ReadOptions
    describe: str | None = "fast"
    disks: tuple[str, ...] = ()
    parts: bool = False

    def profile(self, files: Sequence[Path], progress: Progress) -> Profile:
        """Return the profile of a profile file, or of traces that are read together.

        Raises:
            InputError: The files are neither, or damaged; a profile has other disks than the requested ones; or a
                profile is given together with other files.
        """
        from cephfit.traces import profile_files
        from cephfit.traces.readers.block_events.block_layer import Action

        found = self._profile_file(files)
        if found is not None:
            return found
        with parts_hint(files, parts=self.parts):
            return profile_files(
                files,
                format_name=self.format_name,
                action=Action(self.action) if self.action else None,
                disks=self.disks,
                parts=self.parts,
                full=None if self.describe is None else self.describe == "full",
                options=self.options,
                demands=True,
                progress=progress,
            )

    def profiles_by_disk(self, files: Sequence[Path], progress: Progress) -> list[Profile]:
        """Return the profile of a profile file (with any number of disks), or a profile of each disk of traces.

        Raises:
            InputError: As for ``profile``.
        """
        from cephfit.traces import profiles_by_disk
        from cephfit.traces.readers.block_events.block_layer import Action

        found = self._profile_file(files)
        if found is not None:
            return [found]
        with parts_hint(files, parts=self.parts):
            return profiles_by_disk(
                files,
                format_name=self.format_name,
                action=Action(self.action) if self.action else None,
                disks=self.disks,
                parts=self.parts,
                full=self.describe != "fast",
                options=self.options,
                progress=progress,
            )

    def _profile_file(self, files: Sequence[Path]) -> Profile | None:
        from cephfit.core.errors import InputError
        from cephfit.core.profile_files import read_profile
        from cephfit.traces.description.stored_descriptions import check_description

        if self.format_name is not None or self.options.format_name is not None:
            return None
        path = next((f for f in files if _looks_like_a_profile(f, alone=len(files) == 1)), None)
        if path is None:
            return None
        if len(files) > 1:
            raise InputError(
                "a profile cannot be read together with other files",
                where=str(path),
                remedy="give one profile alone, or all trace files of the workload",
            )
        found = read_profile(path)
        check_description(found.description, where=str(path))
        self._refuse_other_disks(found, path)
        return found

    def _refuse_other_disks(self, found: Profile, path: Path) -> None:
        from cephfit.core.errors import InputError

        if self.disks and set(found.description.get("disks", {})) != set(self.disks):
            raise InputError(
                "a profile covers all its disks together",
                where=f"{path}, --disk {self.disks[0]}",
                remedy="give the trace, or create a profile of the disk: cephfit trace profile TRACE --disk "
                f"{self.disks[0]} -o profile.json",
            )

    def accesses(
        self, files: Sequence[Path], *, disk: str | None, progress: Progress
    ) -> tuple[AccessSource, Mapping[str, Any]]:
        """Return the accesses of a recording, and the omitted disks.

        The accesses are those of one disk, or of all disks of one level. A disk is omitted if its accesses are
        those of another disk.

        Raises:
            InputError: The trace does not exist, or there are several recordings.
        """
        from cephfit.core.errors import InputError
        from cephfit.traces.access_source import AccessSource, omitted_disks
        from cephfit.traces.readers.block_events.block_layer import Action
        from cephfit.traces.recordings import recordings_of

        recordings = recordings_of(files)
        if len(recordings) > 1:
            raise InputError(
                f"one recording is needed, and {len(recordings)} are given",
                where=", ".join(recording.name for recording in recordings),
                remedy="give one; join consecutive parts: "
                f"cat PART... | {click.get_current_context().command_path} - (blktrace: the parts of each CPU "
                "into a file NAME.blktrace.CPU)",
            )
        action = Action(self.action) if self.action else None
        others = (
            omitted_disks(
                files, format_name=self.format_name, action=action, options=self.options, progress=progress
            )
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
    """Add the options for reading a trace, passed to the command as ``trace``, a ``TraceInput``."""
    for option in (
        click.option(
            "--action",
            type=click.Choice(["Q", "D", "C"]),
            help="For a trace: block-layer event that counts as an access, Q (queued), D (issued to the disk) "
            "or C (completed).  [default: Q; C for a trace of completions only]",
        ),
        click.option(
            "--format",
            "format_name",
            metavar="FORMAT",
            shell_complete=trace_formats,
            help="Format of the trace.  [default: detected from its content]",
        ),
    ):
        command = option(command)

    @wraps(command)
    def with_trace(
        *,
        format_name: str | None,
        action: str | None,
        assume_op: str | None,
        columns: str | None,
        blkparse_format: str | None,
        describe: str | None = "fast",
        disks: tuple[str, ...] = (),
        parts: bool = False,
        **others: Any,
    ) -> Any:
        options = read_options(assume_op, columns, blkparse_format)
        return command(trace=TraceInput(format_name, action, options, describe, disks, parts), **others)

    return reading_options(with_trace)  # type: ignore[return-value]


def files_argument(command: _Command) -> _Command:
    """Add the argument ``files`` (a profile, or traces that are read together) and ``--parts``.

    Apply it below ``trace_options``.
    """
    files = click.argument("files", metavar="PROFILE|TRACE...", nargs=-1, required=True, type=TracePath())
    return files(parts_option(command))


def description_option(command: _Command) -> _Command:
    """Add ``--describe`` and ``--disk``, for commands that profile a trace; apply it below ``trace_options``."""
    return click.option(
        "--describe",
        type=click.Choice(["fast", "full"]),
        help="How much of a trace to describe; fast omits behaviour over time and over the disk "
        "[default: full, for up to 32 disks].",
    )(disks_option(command))


def _looks_like_a_profile(path: Path, *, alone: bool) -> bool:
    """Return whether a file looks like a profile.

    The record of a capture may be given together with its trace files, for example by ``trace/*``.
    """
    from cephfit.traces.capturing import capture

    if not path.is_file() or (not alone and path.name.endswith(capture.SUFFIX)):
        return False
    with path.open("rb") as file:
        head = file.read(4096)
    return head.lstrip().startswith(b"{") and b'"schema_version"' in head

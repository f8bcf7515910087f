"""Options in the ceph.conf of the daemons' hosts: a marked block at the end of the file, which can be removed.

Ceph merges sections of the same name, and the last line of an option in a section wins (ConfUtils.cc of every
release). A daemon's section (``osd.3``) beats that of its type, which beats ``global``. So a block at the end of
the file wins over the same sections above it, and nothing above it must change.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path, PurePosixPath

import jinja2

from cephfit.ceph.admin.daemons import Daemon, concerned, running_daemons, strongest
from cephfit.ceph.delivery.osd_restarts import RestartsDue
from cephfit.ceph.host import read_bytes, remove_draft, replace
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import HostError, InputError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.values.configuration import Configuration, Partition, Setting, Undoing

Sections = Mapping[str, Mapping[str, str]]
"""Section (``global``, ``osd``, ``osd.3`` ...) to option to value."""

_BEGIN = b"# >>> cephfit"
_END = b"# <<< cephfit"
_BLOCK = re.compile(rb"\n# >>> cephfit[^\n]*\n(?:(?!# [<>]{3} cephfit)[^\n]*\n)*# <<< cephfit[^\n]*\n")
"""The line break before the block belongs to it: the file above may end without one."""
_HEADING = re.compile(r"\s*\[([^\]]*)\]")
_COMMENT = re.compile(r"(?<!\\)[#;]")
_SPECIAL = re.compile(r"([\\#;\"'])")


class TornBlockError(ValueError):
    """The block of cephfit is incomplete."""


def without_block(content: bytes) -> bytes:
    """Return the file without the block of cephfit: exactly the bytes from before.

    Raises:
        TornBlockError: the first or last line of the block is missing.
    """
    rest = _BLOCK.sub(b"", content)
    if any(line.startswith((_BEGIN, _END)) for line in rest.splitlines()):
        raise TornBlockError
    return rest


def text_without_block(path: Path) -> str:
    """Read a ceph.conf of this machine as text, without the block of cephfit.

    Raises:
        InputError: it is not text, or its block is incomplete.
    """
    try:
        return without_block(path.read_bytes()).decode()
    except TornBlockError:
        raise InputError(
            "cephfit's lines in it were edited, and their end is unclear",
            where=str(path),
            remedy="remove the lines from `# >>> cephfit` to `# <<< cephfit`",
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8", where=str(path), remedy="save it as UTF-8, or plain ASCII"
        ) from None


def with_block(original: bytes, sections: Sections, *, configuration: str) -> bytes:
    """Return the file with a block of sections at its end.

    Args:
        original: without a block of cephfit.
        sections: content of the block; empty for none.
        configuration: its name, for people who read the file.

    Raises:
        InputError: a value cannot be written safely in such a file.
    """
    if not any(sections.values()):
        return original
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, autoescape=False)
    template = environment.from_string((files("cephfit.templates") / "conf_block.j2").read_text())
    lines = template.render(
        begin=_BEGIN.decode(),
        end=_END.decode(),
        configuration=" ".join(configuration.encode("ascii", "replace").decode().split()),
        sections={
            name: {key: escaped(value, key) for key, value in sorted(options.items())}
            for name, options in sorted(sections.items(), key=lambda item: (_rank(item[0]), item[0]))
            if options
        },
    )
    return original + b"\n" + lines.encode("ascii") + b"\n"


def escaped(value: str, key: str) -> str:
    """Return a value in the syntax of the file.

    Raises:
        InputError: it has control characters, ends with a backslash (which would join the next line), or is not
            ASCII: some builds of Ceph (such as Debian's Pacific) terminate at that, even in a comment.
    """
    if not value.isascii() or not value.isprintable() or value.endswith("\\"):
        raise InputError(
            f"the value {value!r} is not safe in a ceph.conf",
            where=key,
            remedy="use printable ASCII without a backslash at the end",
        )
    return _SPECIAL.sub(r"\\\1", value)


def sections_of(content: bytes) -> dict[str, dict[str, str]]:
    """Parse a file the way Ceph does; lines before the first section are ignored.

    Bytes that are not UTF-8 become question marks: Ceph refuses such a file.
    """
    found: dict[str, dict[str, str]] = {}
    section: dict[str, str] | None = None
    text = content.decode(errors="replace").replace("\\\r\n", "").replace("\\\n", "")
    for line in text.split("\n"):
        if heading := _HEADING.match(line):
            section = found.setdefault(heading[1].strip(), {})
            continue
        key, is_pair, value = _COMMENT.split(line, maxsplit=1)[0].partition("=")
        if is_pair and key.strip() and section is not None:
            section["_".join(key.split())] = _plain(value.strip())
    return found


def effective(sections: Sections, names: tuple[str, ...]) -> dict[str, str]:
    """Merge several sections.

    Args:
        sections: of a file.
        names: the sections that a daemon reads, the weakest first: ``("global", "osd", "osd.3")``.
    """
    found: dict[str, str] = {}
    for name in names:
        found.update(sections.get(name, {}))
    return found


def merged(first: Sections, second: Sections) -> dict[str, dict[str, str]]:
    """Join two parts of a file."""
    names = dict.fromkeys([*first, *second])
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in names}


def _plain(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return re.sub(r"\\(.)", r"\1", value)


def _rank(section: str) -> int:
    return 0 if section == "global" else 2 if "." in section else 1


_FILE = "ceph.conf"


@dataclass(frozen=True, slots=True)
class ConfFile:
    """A ceph.conf and its readers.

    Attributes:
        host: name in ``Hosts``.
        path: absolute.
        daemons: that read it at their start.
    """

    host: str
    path: str
    daemons: tuple[Daemon, ...] = field(default=(), compare=False)

    @property
    def place(self) -> str:
        return f"{self.host}:{self.path}"


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one file.

    Attributes:
        file: to change.
        now: its present content.
        original: without a block of ours.
        then: its new content.
        sections: content of our block in ``then``.
        osds: that need a restart for the new values, each with the options and their values.
    """

    file: ConfFile
    now: bytes
    original: bytes
    then: bytes
    sections: Sections
    osds: Mapping[int, Mapping[str, str]]


def sections_for(
    settings: Sequence[Setting], daemons: Sequence[Daemon], base: Sections
) -> dict[str, dict[str, str]]:
    """Return the sections that make daemons run with settings, whatever else the file contains.

    A setting goes into the section of its scope. It also goes into the daemon's section where the file has the
    option in a stronger section, and for masks (``osd/class:hdd``), which such files do not support.

    Args:
        settings: of the partition ceph.
        daemons: that read the file.
        base: sections of the file.
    """
    sections: dict[str, dict[str, str]] = {}
    for setting in settings:
        if "/" not in setting.scope and concerned(setting.scope, daemons):
            sections.setdefault(setting.scope, {})[setting.key] = as_ceph_writes(setting.value)
    for daemon in daemons:
        for key in {setting.key: None for setting in settings}:
            rivals = {s.scope: as_ceph_writes(s.value) for s in settings if s.key == key}
            scope = strongest(list(rivals), daemon)
            if scope is not None and effective(merged(base, sections), _read_by(daemon)).get(key) != rivals[scope]:
                sections.setdefault(daemon.name, {})[key] = rivals[scope]
    return sections


class ConfFiles:
    """Brings the files from any state to that of a configuration.

    It reads its state from the files and the journal, never from memory, so that the next process can continue
    after a kill at any point. Before a file is changed, the journal has its original, byte for byte, and the OSDs
    that read it.

    Args:
        admin: locates the running daemons.
        hosts: gives access to their hosts.
        journal: of the target.
        path: of the file on every host; ``$id`` and ``$name`` are the daemon's.
        restarts: records the OSDs that must read their file again.
        progress: reports files that were edited meanwhile.
    """

    def __init__(
        self,
        admin: CephAdmin,
        hosts: Hosts,
        journal: Journal,
        *,
        path: str,
        restarts: RestartsDue,
        progress: Progress,
    ) -> None:
        self._admin = admin
        self._hosts = hosts
        self._journal = journal
        self._path = path
        self._restarts = restarts
        self._progress = progress
        self._seen: set[str] = set()

    def why_not(self, configuration: Configuration) -> str:
        """Return why the files for a configuration cannot be changed; empty if they can. Changes nothing."""
        for file in self._files(configuration, running_daemons(self._admin)):
            if file.place not in self._seen:
                if why := self._why_not(file):
                    return why
                self._seen.add(file.place)
        return ""

    def _why_not(self, file: ConfFile) -> str:
        try:
            content = read_bytes(self._hosts.named(file.host), PurePosixPath(file.path))
        except HostError as error:
            return f"{file.path} on {file.host}, read by {_names(file.daemons)}, is not accessible: {error.what}"
        fsid = str(self._admin.command("status")["fsid"])
        reported = sections_of(content).get("global", {}).get("fsid", fsid)
        return "" if reported == fsid else f"{file.path} on {file.host} belongs to another cluster, {reported}"

    def changes(self, configuration: Configuration) -> tuple[Change, ...]:
        """Return the changes of files for a configuration, including files to restore; changes nothing.

        Raises:
            HostError: a host is unreachable, or a block of ours is incomplete.
        """
        daemons = running_daemons(self._admin)
        files = {file.place: file for file in self._changed(daemons)}
        files |= {file.place: file for file in self._files(configuration, daemons)}
        return tuple(self._change(file, configuration) for file in files.values())

    def apply(self, configuration: Configuration) -> None:
        """Write the blocks of a configuration; restore files that were changed before and that it does not need.

        Raises:
            HostError: as ``changes``, or a host refuses.
            InputError: a value is not safe in a ceph.conf.
        """
        for change in self.changes(configuration):
            self._make(change)

    def take_back(self) -> None:
        """Restore every changed file; an unreachable host does not prevent the others.

        Raises:
            CephfitError: lists every file that was not restored.
        """
        tried = ErrorCollector()
        for file in self._changed(running_daemons(self._admin)):
            tried.make(partial(self._put_back, file))
        tried.end()

    def undoings(self) -> list[Undoing]:
        """Return the files that ``apply`` of the default restores."""
        return [
            Undoing(f"file {e.place}", "has lines of cephfit", "as it was") for e in self._journal.entries(_FILE)
        ]

    def _changed(self, daemons: Sequence[Daemon]) -> list[ConfFile]:
        """Return the files with a block of ours, by the journal."""
        entries = self._journal.entries(_FILE)
        readers = {file.place: file.daemons for file in self._places(daemons)} if entries else {}
        found = []
        for place in (entry.place for entry in entries):
            host, _, path = place.partition(":")
            found.append(ConfFile(host, path, readers.get(place, ())))
        return found

    def _put_back(self, file: ConfFile) -> None:
        self._make(self._change(file, Configuration("")))

    def _make(self, change: Change) -> None:
        file, path = change.file, PurePosixPath(change.file.path)
        host = self._hosts.named(file.host)
        self._restarts.note(change.osds)
        if change.sections:
            self._journal.note(_FILE, file.place, base64.b64encode(change.original).decode())
        if change.then != change.now:
            replace(host, path, change.then)
        entry = self._journal.get(_FILE, file.place)
        if entry is not None and not change.sections:
            remove_draft(host, path)
            if base64.b64decode(entry.was) != change.then:
                self._progress.note(
                    f"{file.place} was edited meanwhile: cephfit's lines are removed, the rest is unchanged"
                )
            self._journal.forget(_FILE, file.place)

    def _change(self, file: ConfFile, configuration: Configuration) -> Change:
        now = read_bytes(self._hosts.named(file.host), PurePosixPath(file.path))
        try:
            original = without_block(now)
        except TornBlockError:
            raise HostError(
                "cephfit's lines in it were edited, and their end is unclear",
                where=file.place,
                remedy="remove the lines from `# >>> cephfit` to `# <<< cephfit`, then start again or restore",
            ) from None
        settings = tuple(configuration.within(Partition.CEPH))
        sections = sections_for(settings, file.daemons, sections_of(original))
        then = with_block(original, sections, configuration=configuration.name)
        before, after = sections_of(now), sections_of(then)
        osds = {}
        for daemon in file.daemons:
            runs, will = effective(before, _read_by(daemon)), effective(after, _read_by(daemon))
            if daemon.kind == "osd" and runs != will:
                keys = sorted(key for key in runs.keys() | will.keys() if runs.get(key) != will.get(key))
                osds[int(daemon.id)] = {key: will.get(key, "") for key in keys}
        return Change(file, now, original, then, sections, osds)

    def _files(self, configuration: Configuration, daemons: Sequence[Daemon]) -> list[ConfFile]:
        """Return the files of the daemons that settings apply to, with all their readers."""
        scopes = {setting.scope for setting in configuration.within(Partition.CEPH)}
        spoken_to = {d.name for scope in scopes for d in concerned(scope, daemons)}
        if not spoken_to:
            return []
        return [file for file in self._places(daemons) if any(d.name in spoken_to for d in file.daemons)]

    def _places(self, daemons: Sequence[Daemon]) -> list[ConfFile]:
        readers: dict[tuple[str, str], list[Daemon]] = {}
        for kind in dict.fromkeys(d.kind for d in daemons):
            reported = {str(e.get("id", e.get("name"))): e for e in self._admin.command(f"{kind} metadata")}
            for daemon in (d for d in daemons if d.kind == kind):
                if host := reported.get(daemon.id, {}).get("hostname"):
                    path = self._path.replace("$name", daemon.name).replace("$id", daemon.id)
                    readers.setdefault((host, path), []).append(daemon)
        return [ConfFile(host, path, tuple(found)) for (host, path), found in readers.items()]


def _read_by(daemon: Daemon) -> tuple[str, ...]:
    """Return the sections that a daemon reads, weakest first."""
    return ("global", daemon.kind, daemon.name)


def _names(daemons: Sequence[Daemon]) -> str:
    shown = ", ".join(d.name for d in daemons[:3])
    return shown if len(daemons) <= 3 else f"{shown} and {len(daemons) - 3} more"

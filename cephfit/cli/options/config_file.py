"""The configuration file: values of options that are the same in many commands.

One file is read: that of ``cephfit --config FILE``, else of ``$CEPHFIT_CONFIG``, else
``$XDG_CONFIG_HOME/cephfit/config.yaml``. A file in the current folder is not read: any user who can write
there could otherwise select the cluster that a command changes.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from platformdirs import user_config_path

from cephfit.core.errors import InputError

if TYPE_CHECKING:
    from cephfit.core.yaml_lines import Located

VARIABLE = "CEPHFIT_CONFIG"
_CHOSEN = "cephfit.config"
"""Key of the path of ``--config`` in click's context."""
DEFAULT_STORE = "results.sqlite"
ADMINS = ("rados", "ceph", "rest")


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and its place, ``file:line``."""

    value: Any
    where: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of the configuration file.

    Attributes:
        path: of the file, whether it exists or not.
        store: results store; None if the file has none.
        everywhere: values for every cluster, by field of ``ClusterOptions``.
        targets: values for one target, which override those; by the target's name up to its first comma.
    """

    path: Path
    store: Entry | None = None
    everywhere: Mapping[str, Entry] = field(default_factory=dict)
    targets: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)

    def of_target(self, target: str | None) -> dict[str, Entry]:
        """Return the values for a target; its section overrides the values for every cluster."""
        own = self.targets.get(target.partition(",")[0], {}) if target else {}
        return {**self.everywhere, **own}


def choose(context: click.Context, path: Path | None) -> None:
    """Store the path given with ``--config`` in the context.

    Raises:
        InputError: there is no such file.
    """
    if path is not None and not path.exists():
        raise InputError(
            "this configuration file does not exist",
            where=str(path),
            remedy=f"correct --config or ${VARIABLE}, or omit it",
        )
    context.meta[_CHOSEN] = path


def config_file() -> ConfigFile:
    """Return the configuration file of the running command; an empty one if the default file does not exist.

    Raises:
        InputError: it cannot be read or is wrong; or a named file does not exist.
    """
    context = click.get_current_context(silent=True)
    named = context.meta.get(_CHOSEN) if context is not None else None
    named = named or os.environ.get(VARIABLE) or None
    path = Path(named) if named is not None else user_config_path("cephfit") / "config.yaml"
    if named is None and not path.exists():
        return ConfigFile(path)
    return read_config(path)


def configured_store() -> str:
    """Return the default store of commands."""
    context = click.get_current_context(silent=True)
    try:
        found = config_file().store
    except InputError:
        if context is not None and context.resilient_parsing:  # shell completion
            return DEFAULT_STORE
        raise
    return found.value if found is not None else DEFAULT_STORE


def read_config(path: Path) -> ConfigFile:
    """Read a configuration file.

    Raises:
        InputError: names the line that is wrong.
    """
    from cephfit.core.yaml_lines import read_yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(
            f"the configuration file cannot be read: {why}",
            where=str(path),
            remedy=f"give another file with --config or ${VARIABLE}",
        ) from None
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return ConfigFile(path)
    document = read_yaml(text, file=str(path)).mapping(("store", "targets", *OPTIONS))
    store = None
    if "store" in document:
        store = Entry(_store(document["store"], path.parent), document["store"].where)
    everywhere = _entries({key: one for key, one in document.items() if key in OPTIONS}, path.parent)
    targets = {}
    if "targets" in document:
        for name, section in document["targets"].mapping().items():
            if name.partition(":")[0] not in ("ceph", "openstack") or "," in name:
                section.refuse(f"{name!r} is not a cluster", "write ceph, ceph:NAME or openstack:CLOUD")
            targets[name] = _entries(section.mapping(OPTIONS), path.parent)
    config = ConfigFile(path, store, everywhere, targets)
    _require_private(config)
    return config


def _entries(section: "Mapping[str, Located]", folder: Path) -> dict[str, Entry]:
    return {OPTIONS[key].field: Entry(OPTIONS[key].read(one, folder), one.where) for key, one in section.items()}


def _require_private(config: ConfigFile) -> None:
    """Check the file's mode if an address in it has a password.

    Raises:
        InputError: other users may read it.
    """
    entries = [config.store, *config.everywhere.values()]
    entries += [entry for section in config.targets.values() for entry in section.values()]
    secret = [one for one in entries if one is not None and isinstance(one.value, str) and _password(one.value)]
    if secret and config.path.stat().st_mode & 0o077:
        raise InputError(
            "the address holds a password, and other users may read this file",
            where=secret[0].where,
            remedy=f"chmod 600 {config.path}",
        )


def _password(text: str) -> str:
    try:
        return urlsplit(text).password or ""
    except ValueError:
        return ""


def _text(one: "Located", _folder: Path) -> str:
    text = one.text()
    if not text:
        one.refuse(f"{one.what} is empty", "write a value, or delete the line")
    return text


def _path(one: "Located", folder: Path) -> Path:
    return folder.absolute() / Path(_text(one, folder)).expanduser()


def _store(one: "Located", folder: Path) -> str:
    text = _text(one, folder)
    return text if "://" in text else str(_path(one, folder))


def _admin(one: "Located", folder: Path) -> str:
    text = _text(one, folder)
    if text not in ADMINS:
        one.refuse(f"{one.what} cannot be {text!r}", f"choose from: {', '.join(ADMINS)}")
    return text


def _restarts(one: "Located", folder: Path) -> str:
    text = _text(one, folder)
    return str(_path(one, folder)) if "/" in text else text


def _hosts(one: "Located", folder: Path) -> tuple[str, ...]:
    return tuple(f"{name}={_text(host, folder)}" for name, host in one.mapping().items())


@dataclass(frozen=True, slots=True)
class _OptionKind:
    """The parser of an option, and its field in ``ClusterOptions``."""

    field: str
    read: "Callable[[Located, Path], Any]"


OPTIONS: Mapping[str, _OptionKind] = {
    "conf": _OptionKind("conf", _path),
    "id": _OptionKind("client_id", _text),
    "keyring": _OptionKind("keyring", _path),
    "admin": _OptionKind("admin", _admin),
    "rest-url": _OptionKind("rest_url", _text),
    "only-pool": _OptionKind("only_pool", _text),
    "restarts": _OptionKind("restarts", _restarts),
    "ssh": _OptionKind("ssh", lambda one, _: one.truth()),
    "ssh-user": _OptionKind("ssh_user", _text),
    "ssh-config": _OptionKind("ssh_config", _path),
    "ssh-host": _OptionKind("ssh_hosts", _hosts),
    "crush-rule": _OptionKind("crush_rule", _text),
    "pg-num": _OptionKind("pg_num", lambda one, _: one.whole(least=1)),
}
"""Options allowed in the file, by their command-line names. Permission to change a cluster (``--apply``) or to
take over a lock (``--take-over``) must be given each time, never by a file."""

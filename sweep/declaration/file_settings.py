"""Read the configurations of a sweep file with their settings, and the pools that it declares.

Pools are declared in the section ``pools`` of a sweep file, or in pool files for ``cephfit pools``:

    pools:
      fast:   {devices: {class: ssd}, size: 3, pg_num: 64}
      mixed:  {primary: {class: ssd, hosts: [a, b]}, devices: {class: hdd, hosts: [c, d]}, size: 3}
      coded:  {devices: {class: hdd}, erasure: {k: 4, m: 2}}
      tiered: {devices: {class: hdd}, cache: {devices: {class: ssd}, mode: writeback, target_max_bytes: 100G}}

In a configuration, ``pool: {use: fast}`` includes all settings of ``fast``; keys next to ``use`` override them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cephfit.ceph.environment.scopes import GREATER_SCOPES, fault_of_key, fault_of_scope, fault_of_value, keys_of
from cephfit.ceph.options.option import as_ceph_writes, risk_of
from cephfit.ceph.pools.pool_keys import CLASSES, IMAGE_KEYS, LISTS, NESTED, POOL_KEYS, is_pool_key
from cephfit.ceph.pools.pool_plan import POOL_PREFIX, plan_pools
from cephfit.core.errors import InputError
from cephfit.core.values.configuration import (
    DEFAULT_CONFIGURATION,
    QOS,
    QOS_KEYS,
    TYPE,
    VOLUME_KEYS,
    Configuration,
    Partition,
    Setting,
    Value,
    fault_of_qos,
    fault_of_qos_value,
    qos_declared,
)
from cephfit.core.yaml_lines import Located, nearest, read_yaml

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""Names of sweeps and configurations: they become file names and columns."""

USE = "use"
"""Key of ``pool`` that names a pool of the section ``pools`` and adds all of its settings."""
_CEPH_SECTIONS = ("global", "osd", "mon", "mgr", "client")
SETTING_PARTS = ("pool", "image", "volume", "ceph", "greater")
_CONFIGURATION = ("why", *SETTING_PARTS)
_MASKED_SECTION = re.compile(r"(global|osd|mon|mgr|client)(\.[A-Za-z0-9_-]+)?(/[a-z]+:[A-Za-z0-9_.-]+)?")


def read_configurations(entry: Located | None, accepted: tuple[str, ...]) -> tuple[Configuration, ...]:
    """Return all configurations, the default first; it is implied where the file does not name it.

    Args:
        entry: the section ``configurations``, None where the file has none.
        accepted: keys of settings that risk data and are applied nevertheless.

    Raises:
        InputError: names file and line.
    """
    default = Configuration(DEFAULT_CONFIGURATION, why="Ceph's defaults")
    others: list[Configuration] = []
    for name, body in (entry.mapping() if entry is not None else {}).items():
        if not NAME.fullmatch(name):
            body.refuse(
                f"{name!r} cannot be a configuration's name",
                "use at most 40 of a to z, A to Z, 0 to 9, -, _ and .",
            )
        parts = body.mapping(_CONFIGURATION)
        settings = tuple(sorted(_settings(parts, accepted), key=lambda s: (s.partition, s.scope, s.key)))
        configuration = Configuration(name, settings, parts["why"].text() if "why" in parts else "")
        if fault := fault_of_configuration(configuration):
            parts["volume"].refuse(fault)
        if name != DEFAULT_CONFIGURATION:
            others.append(configuration)
        elif settings:
            body.refuse(
                f"{DEFAULT_CONFIGURATION} is the default and has no settings",
                "move these settings to a configuration with another name",
            )
        else:
            default = configuration
    return (default, *others)


def _settings(parts: dict[str, Located], accepted: tuple[str, ...]) -> Iterator[Setting]:
    for place in setting_places(parts):
        yield place.setting(value_of(place), accepted)


def fault_of_configuration(configuration: Configuration) -> str:
    """Return why a configuration's settings contradict each other; empty if they do not."""
    specs = qos_declared(configuration)
    return fault_of_qos(specs) if specs else ""


def value_of(place: "SettingPlace") -> Value:
    """Return the single value of a key; hosts and OSDs of a pool may be a list.

    Raises:
        InputError: the entry is not a single value.
    """
    key, entry = place.key, place.entry
    is_list = place.scope == "pool" and (key.rpartition(".")[2] in LISTS or key.startswith(f"{CLASSES}."))
    if is_list and isinstance(entry.value, list):
        return ",".join(str(item.scalar()) for item in entry.items())
    return entry.scalar()


@dataclass(frozen=True, slots=True)
class SettingPlace:
    """A setting without its value: its place, and the entry of the file that holds its value or values.

    Attributes:
        partition: see Setting.
        scope: see Setting.
        key: in Ceph's spelling.
        entry: the value or values of the key.
    """

    partition: Partition
    scope: str
    key: str
    entry: Located

    def setting(self, value: Value, accepted: tuple[str, ...]) -> Setting:
        """Return the setting with this value.

        Raises:
            InputError: the value is not valid, or the setting risks data and is not in ``accepted``.
        """
        setting = Setting(self.partition, self.scope, self.key, value)
        if self.partition is Partition.GREATER and (fault := fault_of_value(self.scope, self.key, value)):
            self.entry.refuse(f"{self.scope}: {fault}")
        key = self.key.removeprefix(f"{QOS}.")
        if self.scope == "volume" and key != self.key and (fault := fault_of_qos_value(key, value)):
            self.entry.refuse(fault)
        risk = risk_of(setting)
        if risk is not None and not {self.key, self.key.rpartition(".")[2]} & set(accepted):
            self.entry.refuse(
                f"{setting} risks data: {risk.why}",
                f"to accept this risk on this cluster, add `accept_risk: [{self.key}]` to the file",
            )
        return setting


def setting_places(parts: dict[str, Located]) -> Iterator[SettingPlace]:
    """Yield all keys under ``pool``, ``image``, ``volume``, ``ceph`` and ``greater``.

    Raises:
        InputError: names file and line.
    """
    if "pool" in parts:
        for place in _scope(parts["pool"], Partition.POOL, "pool"):
            if place.key != USE and not is_pool_key(place.key):
                place.entry.refuse(f"a pool has no {place.key!r}", nearest(place.key, (USE, *NESTED, *POOL_KEYS)))
            yield place
    if "image" in parts:
        for place in _scope(parts["image"], Partition.POOL, "image"):
            if place.key not in IMAGE_KEYS:
                place.entry.refuse(f"an image has no {place.key!r} here", nearest(place.key, IMAGE_KEYS))
            yield place
    if "volume" in parts:
        for place in _scope(parts["volume"], Partition.POOL, "volume"):
            if place.key not in VOLUME_KEYS:
                place.entry.refuse(f"a Cinder volume has no {place.key!r} here", nearest(place.key, (TYPE, QOS)))
            yield place
    if "ceph" in parts:
        for section, body in parts["ceph"].mapping().items():
            if not _MASKED_SECTION.fullmatch(section):
                body.refuse(
                    f"{section!r} is not a section of Ceph's configuration", nearest(section, _CEPH_SECTIONS)
                )
            yield from _scope(body, Partition.CEPH, section)
    if "greater" in parts:
        for scope, body in parts["greater"].mapping().items():
            if fault := fault_of_scope(scope):
                body.refuse(fault, nearest(scope, GREATER_SCOPES))
            for place in _scope(body, Partition.GREATER, scope):
                if fault := fault_of_key(scope, place.key):
                    place.entry.refuse(fault, nearest(place.key, keys_of(scope)) if keys_of(scope) else "")
                yield place


def _scope(body: Located, partition: Partition, scope: str) -> Iterator[SettingPlace]:
    for key, entry in body.mapping().items():
        # Ceph reads "osd op threads", "osd-op-threads" and "osd_op_threads" as one option.
        canonical = re.sub(r"[ -]", "_", key) if partition is Partition.CEPH else key
        if canonical != key and canonical in body.value:
            entry.refuse(f"{key!r} is given twice, also as {canonical!r}")
        if scope == "pool" and key in NESTED:
            yield from _nested(key, entry)
        elif (scope, key) == ("volume", QOS):
            yield from _qos(entry)
        else:
            yield SettingPlace(partition, scope, canonical, entry)


def _nested(word: str, body: Located) -> Iterator[SettingPlace]:
    """Yield nested keys with dots: ``cache: {devices: {class: ssd}}`` is ``cache.devices.class: ssd``."""
    for key, entry in body.mapping().items():
        if isinstance(entry.value, dict):
            yield from _nested(f"{word}.{key}", entry)
        else:
            yield SettingPlace(Partition.POOL, "pool", f"{word}.{key}", entry)


def _qos(body: Located) -> Iterator[SettingPlace]:
    """Yield the limits of ``qos`` with dots: ``qos: {total_iops_sec: 500}`` is ``qos.total_iops_sec: 500``."""
    if not body.mapping():
        body.refuse("qos has no limits", "write a limit, such as {total_iops_sec: 500}, or remove qos")
    for key, entry in body.mapping(QOS_KEYS).items():
        yield SettingPlace(Partition.POOL, "volume", f"{QOS}.{key}", entry)


SCHEMA_VERSION = 1

Declared = Mapping[str, tuple[Setting, ...]]
"""Name of a pool in the file to its settings."""


@dataclass(frozen=True, slots=True)
class PoolFile:
    """A file of pools for a cluster.

    Attributes:
        file: its name, for messages.
        pools: name of the pool in the cluster to its settings: key to value in Ceph's notation.
    """

    file: str
    pools: Mapping[str, Mapping[str, str]]


def read_pools(entry: Located | None, accepted: tuple[str, ...]) -> Declared:
    """Return the section ``pools``.

    Args:
        entry: the section, None where the file has none.
        accepted: keys of settings that risk data and are applied nevertheless.

    Raises:
        InputError: names file and line.
    """
    declared: dict[str, tuple[Setting, ...]] = {}
    for name, body in (entry.mapping() if entry is not None else {}).items():
        if not NAME.fullmatch(name):
            body.refuse(
                f"{name!r} cannot be a pool's name", "use at most 40 of a to z, A to Z, 0 to 9, -, _ and ."
            )
        settings = []
        for place in setting_places({"pool": body}):
            if place.key == USE:
                place.entry.refuse(f"a declared pool has no {USE!r}", nearest(USE, POOL_KEYS))
            settings.append(place.setting(value_of(place), accepted))
        declared[name] = tuple(settings)
        plan_pools(name, as_texts(settings), {}, where=body.where)  # raises for contradictions, with their line
    return declared


def expand_uses(
    configurations: Sequence[Configuration], declared: Declared, *, file: str
) -> tuple[Configuration, ...]:
    """Return the configurations with the settings of the pools that they use.

    Raises:
        InputError: a configuration uses a pool that is not declared.
    """
    return tuple(_expanded(c, declared, file) for c in configurations)


def _expanded(configuration: Configuration, declared: Declared, file: str) -> Configuration:
    used = [s for s in configuration.settings if (s.partition, s.scope, s.key) == (Partition.POOL, "pool", USE)]
    if not used:
        return configuration
    name = str(used[0].value)
    if name not in declared:
        raise InputError(
            f"configuration {configuration.name} uses a pool {name!r} that is not declared",
            where=file,
            remedy=nearest(name, declared) if declared else "add a section `pools:` that declares it",
        )
    own = [s for s in configuration.settings if s is not used[0]]
    own_keys = {(s.partition, s.scope, s.key) for s in own}
    settings = [*own, *(s for s in declared[name] if (s.partition, s.scope, s.key) not in own_keys)]
    ordered = sorted(settings, key=lambda s: (s.partition, s.scope, s.key))
    return Configuration(configuration.name, tuple(ordered), configuration.why)


def read_pool_file(path: Path, *, whatever_name: bool = False) -> PoolFile:
    """Read a file with ``schema_version``, ``pools`` and, optionally, ``accept_risk``.

    Args:
        path: the file.
        whatever_name: whether to accept names reserved for pools of sweeps. Such pools are no longer created.

    Raises:
        InputError: it cannot be read or used; names file and line.
    """
    example = "`cephfit pools example` prints a file to begin with"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not text in UTF-8 (byte {error.start})", where=str(path), remedy=example) from None
    except OSError as error:
        raise InputError(f"cannot read the pools: {error.strerror}", where=str(path), remedy=example) from None
    entries = read_yaml(text, file=str(path)).mapping(
        ("schema_version", "pools", "accept_risk"), required=("schema_version", "pools")
    )
    version = entries["schema_version"]
    if version.value != SCHEMA_VERSION:
        version.refuse(
            f"schema_version {version.value!r} is not known", f"this cephfit reads schema_version {SCHEMA_VERSION}"
        )
    accepted = tuple(item.text() for item in entries["accept_risk"].items()) if "accept_risk" in entries else ()
    declared = read_pools(entries["pools"], accepted)
    for name, body in entries["pools"].mapping().items():
        # Such pools count as a sweep's: I/O on them may be stopped without a warning.
        if name.startswith(POOL_PREFIX) and not whatever_name:
            body.refuse(
                f"{name!r} cannot be the name of a permanent pool",
                f"{POOL_PREFIX}* are the pools of sweeps: choose another name. `cephfit pools remove` deletes an "
                "existing pool of this name",
            )
    if not declared:
        entries["pools"].refuse("the file declares no pool")
    return PoolFile(str(path), {name: as_texts(settings) for name, settings in declared.items()})


def as_texts(settings: Sequence[Setting]) -> dict[str, str]:
    """Return key to value in Ceph's notation."""
    return {s.key: as_ceph_writes(s.value) for s in settings}

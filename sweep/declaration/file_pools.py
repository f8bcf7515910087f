"""Read declared pools: the section ``pools`` of a sweep file, and pool files for ``cephfit pools``.

    pools:
      fast:   {devices: {class: ssd}, size: 3, pg_num: 64}
      mixed:  {primary: {class: ssd, hosts: [a, b]}, devices: {class: hdd, hosts: [c, d]}, size: 3}
      coded:  {devices: {class: hdd}, erasure: {k: 4, m: 2}}
      tiered: {devices: {class: hdd}, cache: {devices: {class: ssd}, mode: writeback, target_max_bytes: 100G}}

In a configuration, ``pool: {use: fast}`` includes all settings of ``fast``; keys next to ``use`` override them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.pools.pool_keys import POOL_KEYS
from cephfit.ceph.pools.pool_plan import POOL_PREFIX, plan_pools
from cephfit.core.errors import InputError
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.yaml_lines import Located, nearest, read_yaml
from cephfit.sweep.declaration.file_settings import NAME, USE, setting_places, value_of

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

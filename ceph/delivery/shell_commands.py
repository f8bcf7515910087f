"""The shell commands that apply a configuration by hand, and those that undo it. Pure: text only.

They name the same settings as the delivery by ``DaemonOptions``, ``DeclaredPools`` and ``HostSettings``. What
needs a new image, a new pool, a new OSD or access to clients is in ``Parts.by_hand``: no delivery applies that to
what exists.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cephfit.ceph.crush.data_placement import Placement, placement_of
from cephfit.ceph.delivery.central_config import Place
from cephfit.ceph.environment.network_emulation import emulation_of
from cephfit.ceph.environment.scopes import (
    CLIENT_DISK,
    CLIENT_NETWORK,
    CPU_GOVERNOR,
    EMULATION_KEYS,
    MTU,
    NETWORK,
    OSD_DISK,
    OSD_HOST,
    OSD_STORE,
    base_scope,
)
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.pools.pool_keys import value_that_unsets
from cephfit.ceph.pools.pool_plan import pool_settings
from cephfit.core.values.configuration import Configuration, Partition, Setting

ANY_ADMIN = "where `ceph` works"
_NEW_POOL = ("erasure.", "cache.", "metadata.")
_PLACING = ("devices.", "primary.", "failure_domain", "classes.")
_FIRST_POOL_KEYS = ("size", "min_size", "pg_num", "pgp_num", "crush_rule")
_OPTIONAL_POOL_KEYS = ("compression_", "csum_")
"""Prefixes of pool keys that can be removed; a new pool has none of them (Ceph's manual, "Set Pool Values")."""
_OWN_SECTION = re.compile(r"osd\.\d+")
_RESTART_SECONDS = 30
"""Pause in the loop of restarts: the orchestrator restarts a daemon some seconds after the command."""


@dataclass(frozen=True, slots=True)
class Command:
    """One shell line, and the line that undoes it.

    Attributes:
        settings: that it applies; empty for a restart.
        do: the line.
        undo: the line; empty if undoing another one is enough.
        look: a line that shows the present value, to be noted before; empty if ``undo`` needs no such value.
        where: the machines to run it on.
    """

    settings: tuple[Setting, ...]
    do: str
    undo: str = ""
    look: str = ""
    where: str = ANY_ADMIN


@dataclass(frozen=True, slots=True)
class Parts:
    """A configuration, divided by what can be applied to an existing cluster.

    Attributes:
        options: settings for the config store.
        pool: settings of an existing pool.
        hosts: kernel values of the OSDs' hosts.
        by_hand: the others, each with the reason.
    """

    options: Configuration
    pool: Configuration
    hosts: Configuration
    by_hand: tuple[tuple[Setting, str], ...] = ()

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Return the settings that can be applied."""
        return (*self.options.settings, *self.pool.settings, *self.hosts.settings)


@dataclass(frozen=True, slots=True)
class Present:
    """Present values, where known.

    Attributes:
        stored: the config store; None if unknown.
        pool: values of the pool, None for a key without a value; empty if unknown.
    """

    stored: Mapping[Place, str] | None = None
    pool: Mapping[str, str | None] = field(default_factory=dict)


def parts_of(configuration: Configuration) -> Parts:
    """Divide a configuration."""
    pool = pool_settings(configuration)
    is_new_pool = any(s.key.startswith(_NEW_POOL) for s in pool)
    reasons = [
        (s, why) for s in configuration.settings if (why := _why_by_hand(s, is_new_pool=is_new_pool and s in pool))
    ]
    left = {s for s, _ in reasons}

    def only(settings: Iterator[Setting]) -> Configuration:
        return Configuration(configuration.name, tuple(s for s in settings if s not in left))

    return Parts(
        only(configuration.within(Partition.CEPH)),
        only(configuration.within(Partition.POOL)),
        only(configuration.within(Partition.GREATER)),
        tuple(reasons),
    )


def _why_by_hand(setting: Setting, *, is_new_pool: bool) -> str:
    if is_new_pool:
        return (
            "a pool keeps its code and its tier: create a new one with `cephfit pools apply`, and copy the images"
        )
    if setting.partition is Partition.POOL and setting.scope == "image":
        return "an image gets it when it is created"
    if setting.partition is Partition.POOL and setting.scope != "pool":
        return "it belongs to volumes of Cinder: set it on a volume type"
    if setting.partition is Partition.GREATER and base_scope(setting.scope) == CLIENT_DISK:
        return "it belongs to the disks of clients, which cephfit does not reach"
    if setting.partition is Partition.GREATER and base_scope(setting.scope) == CLIENT_NETWORK:
        return "it is the distance of the clients, and no setting of a cluster"
    if setting.partition is Partition.GREATER and base_scope(setting.scope) == OSD_STORE:
        return "an OSD gets it when it is created: replace the OSDs one after the other"
    return ""


def commands_for(
    configuration: Configuration,
    *,
    acts_at_runtime: Callable[[str], bool],
    pool: str = "POOL",
    present: Present | None = None,
) -> tuple[Command, ...]:
    """Return the commands for a configuration, in order. They are undone in reverse order.

    Args:
        configuration: to apply.
        acts_at_runtime: whether running daemons act on a change of an option.
        pool: name of the pool for its pool settings.
        present: values before the change; None if unknown. Where a value is unknown, ``undo`` has a placeholder
            ``OLD`` and ``look`` shows it.
    """
    parts, known = parts_of(configuration), present or Present()
    found = [*_pool_commands(parts.pool, pool, known)]
    found += _option_commands(parts.options, acts_at_runtime, known)
    found += _host_commands(parts.hosts)
    found += _commands_by_hand([s for s, _ in parts.by_hand], pool)
    if any(not acts_at_runtime(s.key) and _reaches_osds(s.scope) for s in parts.options.settings):
        found.append(_restart_of_osds())
    return tuple(found)


def _restart_of_osds() -> Command:
    """Return the restart of all OSDs, one after the other, each when the monitors permit it."""
    loop = (
        "for osd in $(ceph osd ls); do until ceph osd ok-to-stop $osd; do sleep 5; done; "
        f"ceph orch daemon restart osd.$osd; sleep {_RESTART_SECONDS}; done"
    )
    return Command((), loop, loop)


def undo_lines(commands: Sequence[Command]) -> list[tuple[str, str]]:
    """Return the lines that undo commands, in order, each with its machines; restarts come last."""
    changes = [c for c in commands if c.settings]
    restarts = [c for c in commands if not c.settings]
    return [(c.where, c.undo) for c in (*reversed(changes), *restarts) if c.undo]


# Options of the config store.


def _option_commands(
    options: Configuration, acts_at_runtime: Callable[[str], bool], present: Present
) -> Iterator[Command]:
    """Yield weaker sections first: for options that are read at the start, the last line for an OSD wins."""
    for setting in sorted(options.settings, key=lambda s: (s.key, _strength(s.scope))):
        value = as_ceph_writes(setting.value)
        if "/" in setting.scope and not acts_at_runtime(setting.key):
            yield _for_each_osd(setting, value, present)
            continue
        section = setting.scope
        yield Command(
            (setting,),
            shlex.join(["ceph", "config", "set", section, setting.key, value]),
            _undo_option(section, setting.key, present),
            "" if present.stored is not None else f"ceph config dump | grep -w {shlex.quote(setting.key)}",
        )


def _undo_option(section: str, key: str, present: Present) -> str:
    before = (present.stored or {}).get((section, key))
    if before is None:
        return shlex.join(["ceph", "config", "rm", section, key])
    return shlex.join(["ceph", "config", "set", section, key, before])


def _for_each_osd(setting: Setting, value: str, present: Present) -> Command:
    """An OSD reads it before it reports its class and location, so that a masked section comes too late.

    Undoing it removes the values of the scope's OSDs, then sets those that single OSDs had before.
    """
    loop = f"for osd in {_osds_within(setting.scope)}; do ceph config"
    key = shlex.quote(setting.key)
    stored = (present.stored or {}).items()
    own = [place for place, _ in stored if place[1] == setting.key and _OWN_SECTION.fullmatch(place[0])]
    return Command(
        (setting,),
        f"{loop} set osd.$osd {key} {shlex.quote(value)}; done",
        "; ".join([f"{loop} rm osd.$osd {key}; done", *(_undo_option(*place, present) for place in own)]),
        "" if present.stored is not None else f"ceph config dump | grep -w {key}",
    )


def _osds_within(scope: str) -> str:
    """Return a shell word that lists the OSDs of a masked section."""
    lists = []
    for mask in scope.split("/")[1:]:
        word, _, name = mask.partition(":")
        lists.append(
            f"ceph osd crush class ls-osd {shlex.quote(name)}"
            if word == "class"
            else f"ceph osd ls-tree {shlex.quote(name)}"
        )
    if len(lists) == 1:
        return f"$({lists[0]})"
    both = " ".join(f"<({one} | sort)" for one in lists[:2])
    return f"$(comm -12 {both})"


def _strength(scope: str) -> tuple[int, int, int, str]:
    """Sort sections as the config store does; a bucket's level is not known here, a host is the smallest."""
    name, *masks = scope.split("/")
    weight = 0 if name == "global" else 2 if "." in name else 1
    bucket = max((2 if m.startswith("host:") else 0 if m.startswith("class:") else 1 for m in masks), default=0)
    return weight, bucket, len(masks), scope


def _reaches_osds(scope: str) -> bool:
    return scope.partition("/")[0].partition(".")[0] in ("osd", "global")


# Pools.


def _pool_commands(settings: Configuration, pool: str, present: Present) -> Iterator[Command]:
    given = {s.key: as_ceph_writes(s.value) for s in settings.settings}
    placing = tuple(s for s in settings.settings if s.key.startswith(_PLACING))
    placement = placement_of(given, where=f"configuration {settings.name}") if placing else None
    ordered = sorted(settings.settings, key=lambda s: (s.key not in _FIRST_POOL_KEYS, _place_of(s.key), s.key))
    for setting in ordered:
        if setting in placing:
            continue
        command = _pool_command((setting,), pool, setting.key, given[setting.key], present)
        if setting.key == "size":
            # Ceph resets min_size whenever size is set, so that min_size comes after it in both directions.
            least = _pool_command((), pool, "min_size", given.get("min_size", ""), present)
            look = " && ".join(filter(None, (command.look, least.look)))
            yield replace(command, undo=f"{command.undo} && {least.undo}", look=look)
        elif setting.key == "min_size" and "size" in given:
            yield replace(command, undo="", look="")
        else:
            yield command
    if placement is not None:
        yield from _placement_commands(placement, placing, pool, present)


def _place_of(key: str) -> int:
    return _FIRST_POOL_KEYS.index(key) if key in _FIRST_POOL_KEYS else 0


def _pool_command(
    settings: tuple[Setting, ...], pool: str, key: str, value: str, present: Present, *, undo_after: str = ""
) -> Command:
    def set_to(text: str) -> str:
        words = ["ceph", "osd", "pool", "set", pool, key, text]
        return shlex.join(words + (["--yes-i-really-mean-it"] if (key, text) == ("size", "1") else []))

    look = ""
    if key in present.pool:
        before = present.pool[key]
        undo = set_to(value_that_unsets(key) if before is None else before)
    elif key.startswith(_OPTIONAL_POOL_KEYS):
        undo, look = set_to(value_that_unsets(key)), shlex.join(["ceph", "osd", "pool", "get", pool, key])
    else:
        undo, look = set_to(f"OLD_{key.upper()}"), shlex.join(["ceph", "osd", "pool", "get", pool, key])
    return Command(settings, set_to(value), f"{undo}{undo_after}", look)


def _placement_commands(
    placement: Placement, settings: tuple[Setting, ...], pool: str, present: Present
) -> Iterator[Command]:
    """Yield the creation of a rule with the pool's name and its use; other placements need a compiled map."""
    devices = placement.devices
    if placement.primary is not None or devices.osds or placement.classes or len(devices.hosts) > 1:
        yield Command(
            settings,
            "cephfit pools plan FILE --target TARGET   # a rule for this placement needs a changed CRUSH map",
            "cephfit pools remove FILE --target TARGET",
        )
        return
    root = devices.root or (devices.hosts[0] if devices.hosts else "default")
    words = ["ceph", "osd", "crush", "rule", "create-replicated", pool, root, placement.failure_domain]
    yield Command(settings, shlex.join(words + ([devices.device_class] if devices.device_class else [])))
    remove = "; " + shlex.join(["ceph", "osd", "crush", "rule", "rm", pool])
    yield _pool_command(settings, pool, "crush_rule", pool, present, undo_after=remove)


# Hosts of OSDs.


def _host_commands(hosts: Configuration) -> Iterator[Command]:
    emulations: dict[str, list[Setting]] = {}
    # The scheduler comes first: it resets the other values of the queue.
    for setting in sorted(hosts.settings, key=lambda s: (s.scope, s.key != "scheduler", s.key)):
        base = base_scope(setting.scope)
        if base == NETWORK and setting.key in EMULATION_KEYS:
            emulations.setdefault(setting.scope, []).append(setting)
        else:
            yield _host_command(setting, base)
    for scope, settings in emulations.items():
        emulation = emulation_of({s.key: as_ceph_writes(s.value) for s in settings})
        if not emulation.kind:  # all zero: the kernel's default, which is there already
            continue
        words = ["tc", "qdisc", "replace", "dev", "INTERFACE", "root", emulation.kind, *emulation.arguments()]
        undo = "tc qdisc del dev INTERFACE root"
        yield Command(tuple(settings), shlex.join(words), undo, where=_hosts_of(scope))


def _host_command(setting: Setting, base: str) -> Command:
    value, where = as_ceph_writes(setting.value), _hosts_of(setting.scope)
    if base == OSD_DISK:
        return _written(
            setting, f"/sys/block/DISK/queue/{setting.key}", value, f"{where}, for each data disk of its OSDs"
        )
    if base == NETWORK and setting.key == MTU:
        return Command(
            (setting,),
            f"ip link set dev INTERFACE mtu {shlex.quote(value)}",
            "ip link set dev INTERFACE mtu OLD_MTU",
            "ip link show dev INTERFACE",
            where,
        )
    if base == OSD_HOST and setting.key == CPU_GOVERNOR:
        return _written(setting, "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", value, where)
    key = shlex.quote(setting.key)
    old = "OLD_" + "".join(c if c.isalnum() else "_" for c in setting.key).upper()
    do = f"sysctl -w {shlex.quote(f'{setting.key}={value}')}"
    return Command((setting,), do, f"sysctl -w {key}={old}", f"sysctl {key}", where)


def _written(setting: Setting, path: str, value: str, where: str) -> Command:
    old = f"OLD_{setting.key.upper()}"
    write = "| tee" if "*" in path else ">"
    return Command(
        (setting,), f"echo {shlex.quote(value)} {write} {path}", f"echo {old} {write} {path}", f"cat {path}", where
    )


def _hosts_of(scope: str) -> str:
    mask = scope.partition("/")[2]
    return f"on each host with OSDs of {mask}" if mask else "on each host with OSDs"


# What cephfit does not apply to what exists.


def _commands_by_hand(settings: Sequence[Setting], pool: str) -> Iterator[Command]:
    images = [s for s in settings if s.partition is Partition.POOL and s.scope == "image"]
    if images:
        yield Command(tuple(images), _image_creation(images, pool), "", "", "for each new image")
    for setting in settings:
        if setting.partition is Partition.GREATER and base_scope(setting.scope) == CLIENT_DISK:
            path = f"/sys/block/DISK/queue/{setting.key}"
            yield _written(setting, path, as_ceph_writes(setting.value), "on each client, for each of its volumes")


def _image_creation(settings: Sequence[Setting], pool: str) -> str:
    words = ["rbd", "create", "--size", "SIZE"]
    for setting in settings:
        if setting.key == "features":
            for name in filter(None, (n.strip() for n in str(setting.value).split(","))):
                words += ["--image-feature", name]
        else:
            words += [f"--{setting.key.replace('_', '-')}", as_ceph_writes(setting.value)]
    return shlex.join([*words, f"{pool}/IMAGE"])

"""The buckets and the rule that a placement needs in a given map, rendered from ``templates/crush``."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib import resources

import jinja2

from cephfit import templates
from cephfit.ceph.crush import map_text
from cephfit.ceph.crush.data_placement import Devices, Placement
from cephfit.ceph.crush.live_map import LiveMap
from cephfit.core.errors import InputError
from cephfit.core.yaml_lines import nearest

_MAX_SIZE = {False: 10, True: 20}
"""Pool sizes in rules of replicated and erasure-coded pools, for releases with sizes in their rules."""
_OVERLAP = "; the pg_autoscaler ignores pools with roots that share OSDs, also existing pools"
_CHOOSE_TRIES = ("set_chooseleaf_tries 5", "set_choose_tries 100")
"""From Ceph's rules for erasure coding (ErasureCode.cc): every chunk must find an OSD."""


@dataclass(frozen=True, slots=True)
class Part:
    """One bucket or rule to append.

    Attributes:
        kind: ``bucket`` or ``rule``.
        name: unique in the map.
        text: in the syntax of a decompiled map, ending with a newline.
    """

    kind: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts that one placement needs.

    Attributes:
        rule: name of the rule.
        parts: buckets before their parents, the rule last.
        osds: OSDs that the rule may use, id to weight in 1/65536: two mappings (primaries, others) where they
            differ, else one.
        warnings: sentences for the user.
    """

    rule: str
    parts: tuple[Part, ...]
    osds: tuple[Mapping[int, int], ...]
    warnings: tuple[str, ...] = ()


def render_parts(live: LiveMap, placement: Placement, name: str, *, where: str = "") -> Parts:
    """Render the parts of a placement; none of them is in the map yet.

    Args:
        live: the cluster's map.
        placement: required placement.
        name: of the rule; the names of buckets begin with it.
        where: for messages.

    Raises:
        InputError: the map has no such class, host, OSD, root or type.
    """
    writer = _Writer(live, placement, name, where)
    if placement.failure_domain not in live.types:
        raise InputError(
            f"the map has no buckets of type {placement.failure_domain!r}",
            where=where,
            remedy=nearest(placement.failure_domain, live.types),
        )
    groups = [placement.devices] if placement.primary is None else [placement.primary, placement.devices]
    suffixes = [""] if placement.primary is None else ["-primary", ""]
    takes = [writer.take(devices, suffix) for devices, suffix in zip(groups, suffixes, strict=True)]
    writer.rule(takes)
    osds = tuple(writer.osds_of(devices) for devices in groups)
    if all(set(o) == set(osds[0]) for o in osds):
        osds = osds[:1]
    if live.types[placement.failure_domain] > 0:
        writer.warnings += _one_machine(live, {osd for group in osds for osd in group})
    return Parts(name, tuple(writer.parts), osds, tuple(writer.warnings))


_OF_CLASS = re.compile(r"[-_.](ssd|hdd|nvme|sas|sata)\d*$", re.IGNORECASE)
"""The end of a name that people gave the second bucket of a host before Luminous had device classes."""


def _one_machine(live: LiveMap, osds: Set[int]) -> list[str]:
    """Return a warning for each group of buckets with some of these OSDs whose names differ by a class only."""
    groups: dict[str, list[str]] = {}
    for bucket in live.buckets.values():
        if osds & bucket.items.keys():
            groups.setdefault(_OF_CLASS.sub("", bucket.name).lower(), []).append(bucket.name)
    pairs = [" and ".join(sorted(names)) for names in groups.values() if len(names) > 1]
    if not pairs:
        return []
    return [
        f"{_some_words(pairs)} may be one machine: CRUSH counts them as separate failure domains, so several "
        "copies may be on it"
    ]


class _Writer:
    def __init__(self, live: LiveMap, placement: Placement, name: str, where: str) -> None:
        self.parts: list[Part] = []
        self.warnings: list[str] = []
        self._live = live
        self._placement = placement
        self._name = name
        self._where = where
        self._next_id = min([*live.used_ids, 0]) - 1

    def take(self, devices: Devices, suffix: str) -> str:
        """Return the arguments of ``step take``; create the buckets that they need."""
        live = self._live
        emulated = bool(devices.device_class) and not live.class_of
        if devices.osds or emulated:
            return self._root_of_osds(devices, suffix)
        self._require_class(devices.device_class)
        name = devices.root or live.default_root
        if devices.hosts:
            name = self._root_of_hosts(devices, suffix)
        elif not name:
            self._refuse(f"the map has the roots {', '.join(live.roots)}", "choose one: `root: NAME`")
        elif name not in live.buckets:
            self._refuse(f"the map has no bucket {name!r}", nearest(name, live.buckets))
        elif devices.device_class and not self.osds_of(devices):
            self._refuse_class_elsewhere(devices.device_class, name)
        elif others := self._rules_over(name, devices):
            self.warnings.append(f"{devices} shares OSDs with rule {', '.join(others)}" + _OVERLAP)
        return f"{name} class {devices.device_class}" if devices.device_class else name

    def _rules_over(self, name: str, devices: Devices) -> list[str]:
        """Return rules that take some of these OSDs from another root; one class of a root counts as another."""
        live = self._live
        ours, required = f"{name}~{devices.device_class}" if devices.device_class else name, self.osds_of(devices)
        found = []
        for rule in live.document["rules"]:
            for taken in (step["item_name"] for step in rule["steps"] if step["op"] == "take"):
                bucket, _, of_class = taken.partition("~")
                if taken == ours or bucket not in live.buckets:
                    continue
                osds = set(live.osds_under(bucket))
                if of_class:
                    osds &= {osd for osd, c in live.class_of.items() if c == of_class}
                if osds & set(required):
                    found.append(str(rule["rule_name"]))
        return list(dict.fromkeys(found))

    def osds_of(self, devices: Devices) -> dict[int, int]:
        """Return the OSDs that may be taken, with their weight."""
        live = self._live
        if devices.osds or (devices.device_class and not live.class_of):
            return {osd: self._weight(osd) for osd in self._listed(devices)}
        found: dict[int, int] = {}
        for name in devices.hosts or (devices.root or live.default_root,):
            found |= live.osds_under(name)
        return {osd: w for osd, w in found.items() if devices.device_class in ("", live.class_of.get(osd, ""))}

    def rule(self, takes: Sequence[str]) -> None:
        """Return the steps: all copies from one ``take``, or the first from one and the rest from another."""
        placement, live = self._placement, self._live
        leaf = live.types[placement.failure_domain] == 0
        verb = "choose" if leaf else "chooseleaf"
        kind, mode = ("erasure", "indep") if placement.erasure else ("replicated", "firstn")
        steps = [*_CHOOSE_TRIES] if placement.erasure else []
        counts = [0] if len(takes) == 1 else [1, -1]
        for take, count in zip(takes, counts, strict=True):
            steps += [f"take {take}", f"{verb} {mode} {count} type {placement.failure_domain}", "emit"]
        taken = set(live.rules.values())
        self._add(
            "rule",
            self._name,
            "rule.j2",
            id=next(number for number in range(256) if number not in taken),
            kind=kind,
            has_ruleset=map_text.has_ruleset(live.text),
            has_sizes=map_text.has_sizes(live.text),
            min_size=1,
            max_size=_MAX_SIZE[placement.erasure],
            steps=steps,
        )

    def _root_of_hosts(self, devices: Devices, suffix: str) -> str:
        """Create a root above existing buckets, which keep their OSDs, weights and shadow trees."""
        live = self._live
        for host in devices.hosts:
            if host not in live.buckets:
                self._refuse(f"the map has no host {host!r}", nearest(host, live.buckets))
        items = [(host, sum(live.buckets[host].items.values())) for host in devices.hosts]
        self.warnings.append("hosts are under two roots now: `ceph osd tree` shows them twice" + _OVERLAP)
        return self._bucket(f"{self._name}{suffix}-devices", live.buckets[devices.hosts[0]].type, items, root=True)

    def _root_of_osds(self, devices: Devices, suffix: str) -> str:
        """Create a separate root with separate hosts, which contain only these OSDs."""
        live = self._live
        domain = self._placement.failure_domain
        group_type = domain if live.types[domain] > 0 else self._lowest_type()
        groups: dict[str, list[int]] = {}
        for osd in self._listed(devices):
            above = live.above(osd, group_type)
            if not above:
                self._refuse(f"osd.{osd} is in no bucket of type {group_type}", "choose another failure domain")
            groups.setdefault(above, []).append(osd)
        items = []
        for above, osds in groups.items():
            inner = [(live.osd_names[osd], self._weight(osd)) for osd in osds]
            name = self._bucket(f"{self._name}{suffix}-{above}", group_type, inner)
            items.append((name, sum(weight for _, weight in inner)))
        self.warnings.append("OSDs are in two trees now: `ceph osd tree` shows them twice" + _OVERLAP)
        return self._bucket(f"{self._name}{suffix}-devices", group_type, items, root=True)

    def _bucket(self, name: str, type_below: str, items: Sequence[tuple[str, int]], *, root: bool = False) -> str:
        live = self._live
        type_name = type_below
        if root:
            # A root's type must be above its children's: `root` where the map has it, else the highest type.
            type_name = "root" if "root" in live.types else max(live.types, key=lambda t: live.types[t])
        self._add(
            "bucket",
            name,
            "bucket.j2",
            id=self._next_id,
            type=type_name,
            alg=self._alg(),
            weight=_three(sum(weight for _, weight in items)),
            items=[{"name": item, "weight": map_text.in_full(weight)} for item, weight in items],
        )
        self._next_id -= 1
        return name

    def _listed(self, devices: Devices) -> tuple[int, ...]:
        live = self._live
        listed = set(devices.osds) or {osd for b in live.buckets.values() for osd in b.items if osd >= 0}
        for osd in sorted(listed):
            if osd not in live.osd_names and f"device{osd}" not in live.osd_names.values():
                self._refuse(f"the map has no osd.{osd}", f"it has {_some(live.osd_names)}")
        if devices.device_class and live.class_of:
            self._require_class(devices.device_class)
            listed &= {osd for osd, c in live.class_of.items() if c == devices.device_class}
        elif devices.device_class:
            classes = self._placement.classes
            if devices.device_class not in classes:
                self._refuse(
                    "this cluster's map has no device classes (they came with Luminous)",
                    f"list the OSDs: `classes: {{{devices.device_class}: [0, 1, ...]}}`",
                )
            listed &= set(classes[devices.device_class])
        if devices.hosts:
            under = {osd for host in devices.hosts if host in live.buckets for osd in live.osds_under(host)}
            listed &= under
        elif devices.root:
            listed &= set(live.osds_under(devices.root)) if devices.root in live.buckets else set()
        if not listed:
            self._refuse(f"no OSD matches {devices}", "see `ceph osd tree`")
        return tuple(sorted(listed))

    def _require_class(self, name: str) -> None:
        classes = set(self._live.class_of.values())
        if name and name not in classes:
            self._refuse(f"no OSD is of class {name!r}", nearest(name, sorted(classes)))

    def _refuse_class_elsewhere(self, device_class: str, root: str) -> None:
        live = self._live
        osds = {osd for osd, its in live.class_of.items() if its == device_class}
        found = [name for name in live.roots if osds & live.osds_under(name).keys()]
        self._refuse(
            f"no OSD of class {device_class!r} is under {root}",
            f"it is under {', '.join(found)}: add `root: {found[0]}`" if found else "see `ceph osd tree`",
        )

    def _weight(self, osd: int) -> int:
        return next((b.items[osd] for b in self._live.buckets.values() if osd in b.items), 0)

    def _lowest_type(self) -> str:
        return min((n, t) for t, n in self._live.types.items() if n > 0)[1]

    def _alg(self) -> str:
        """Return the algorithm of the live map's trees: clients of an old map may not support straw2."""
        used = {b.alg for b in self._live.buckets.values()}
        return "straw2" if "straw2" in used or not used & {"straw"} else "straw"

    def _add(self, kind: str, name: str, template: str, /, **values: object) -> None:
        live = self._live
        if name in live.buckets or name in live.rules or any(p.name == name for p in self.parts):
            self._refuse(f"the map already has a bucket or rule {name!r}", "give the pool another name")
        self.parts.append(Part(kind, name, _template(template).render(name=name, **values)))

    def _refuse(self, what: str, remedy: str) -> None:
        raise InputError(what, where=self._where, remedy=remedy)


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(resources.files(templates).joinpath(f"crush/{name}").read_text())


def _three(weight: int) -> str:
    return f"{weight / 0x10000:.3f}"


def _some(names: Mapping[int, str]) -> str:
    return _some_words(list(names.values()))


def _some_words(listed: Sequence[str]) -> str:
    return ", ".join(listed[:8]) + (" ..." if len(listed) > 8 else "")

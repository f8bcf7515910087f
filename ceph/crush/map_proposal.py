"""A CRUSH map with appended parts, tested offline before it is injected."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cephfit.ceph.crush import live_map, map_text
from cephfit.ceph.crush.data_placement import Placement
from cephfit.ceph.crush.live_map import LiveMap, NewerMapError
from cephfit.ceph.crush.map_parts import Parts, render_parts
from cephfit.core.protocols import CephAdmin

N_INPUTS = 4096
"""Minimum number of inputs for a rule's test: enough to see a rule that fails for one in a thousand."""
_LOPSIDED = 1.5
"""An OSD with this many times its fair share of PGs is worth a warning."""


@dataclass(frozen=True, slots=True)
class RuleTrial:
    """The result of a rule's test with many inputs, and with the PGs of its pool.

    Attributes:
        rule: name.
        size: required copies or chunks.
        n_inputs: number of inputs.
        n_bad: inputs with fewer OSDs than required.
        n_shared: inputs with two copies in one bucket of the failure domain.
        pgs: PGs of the pool to their OSDs; empty if the pool's number is unknown.
        load: OSD to (its PGs, its fair share of PGs by weight).
    """

    rule: str
    size: int
    n_inputs: int
    n_bad: int
    n_shared: int
    pgs: Mapping[int, tuple[int, ...]]
    load: Mapping[int, tuple[int, float]]

    @property
    def busiest(self) -> float:
        """PGs of the most loaded OSD over its fair share; 1.0 is even."""
        return max((got / due for got, due in self.load.values() if due > 0), default=1.0)

    def faults(self, failure_domain: str) -> tuple[str, ...]:
        """Return why the rule must not be used."""
        faults = []
        if self.n_bad:
            faults.append(
                f"rule {self.rule} finds fewer than {self.size} OSDs for {self.n_bad} of {self.n_inputs} inputs"
            )
        if self.n_shared:
            faults.append(
                f"rule {self.rule} puts two copies into one {failure_domain} for {self.n_shared} of "
                f"{self.n_inputs} inputs: CRUSH separates the copies of one step, not primaries from replicas"
            )
        return tuple(faults)

    def warnings(self) -> tuple[str, ...]:
        idle = sorted(osd for osd, (got, due) in self.load.items() if due > 0 and not got)
        found = [f"osd.{osd} gets no PG of the pool: pg_num is small for its devices" for osd in idle]
        if self.busiest > _LOPSIDED and not idle:
            found.append(
                f"the busiest OSD gets {self.busiest:.1f} times its fair share of PGs; a larger pg_num helps"
            )
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "size": self.size,
            "inputs": self.n_inputs,
            "bad_mappings": self.n_bad,
            "sharing_a_failure_domain": self.n_shared,
            "busiest_osd_over_fair_share": round(self.busiest, 3),
            "pgs_per_osd": {str(osd): {"pgs": got, "due": round(due, 2)} for osd, (got, due) in self.load.items()},
        }


def try_parts(
    changed: LiveMap,
    parts: Parts,
    *,
    size: int,
    failure_domain: str,
    pool: int | None = None,
    pg_num: int = 0,
    in_weights: Mapping[int, float] | None = None,
) -> RuleTrial:
    """Test the rule of some parts in the changed map.

    Args:
        changed: map with the parts.
        parts: as rendered.
        size: copies or chunks of the pool.
        failure_domain: of the placement.
        pool: its number, or the number that it will get; None if unknown.
        pg_num: PGs of the pool.
        in_weights: OSDs that are not fully in, 0 to 1.
    """
    n_inputs = max(N_INPUTS, pg_num)
    rule = changed.rules[parts.rule]
    places, bad = live_map.try_rule(
        changed.binary, rule, size=size, n_inputs=n_inputs, pool=pool, in_weights=in_weights
    )
    above = {osd: changed.above(osd, failure_domain) for osds in parts.osds for osd in osds}
    shared = sum(_shares(osds, above) for osds in places.values())
    counted = {pg: osds for pg, osds in places.items() if pg < pg_num} if pg_num else places
    pgs = counted if pool is not None and pg_num else {}
    return RuleTrial(
        parts.rule, size, n_inputs, len(bad), shared, pgs, _load(counted, parts.osds, size, in_weights or {})
    )


def _shares(osds: Sequence[int], above: Mapping[int, str]) -> bool:
    domains = [above.get(osd, "") for osd in osds if osd != live_map.NOWHERE]
    return len(set(domains)) < len(domains)


def _load(
    places: Mapping[int, tuple[int, ...]],
    groups: Sequence[Mapping[int, int]],
    size: int,
    in_weights: Mapping[int, float],
) -> dict[int, tuple[int, float]]:
    got = Counter(osd for osds in places.values() for osd in osds)
    counts = [size] if len(groups) == 1 else [1, size - 1]
    shares: dict[int, float] = {}
    for osds, count in zip(groups, counts, strict=True):
        weights = {osd: weight * in_weights.get(osd, 1.0) for osd, weight in osds.items()}
        total = sum(weights.values())
        for osd, weight in weights.items():
            shares[osd] = shares.get(osd, 0.0) + (len(places) * count * weight / total if total else 0.0)
    # No OSD gets two copies of one PG, however large it is.
    return {osd: (got[osd], min(share, float(len(places)))) for osd, share in sorted(shares.items())}


def differences(before: LiveMap, after: LiveMap) -> tuple[str, ...]:
    """Return what ``after`` changed or removed of ``before``: must be empty. Additions do not count.

    Weights may be rounded as crushtool parses them; ``Proposal.moved`` shows whether that moves data. It does not
    parse those of shadow trees, but adds them up.
    """
    faults = []
    for what, key in (("devices", "id"), ("types", "type_id"), ("buckets", "id"), ("rules", "rule_id")):
        now = {entry[key]: entry for entry in after.document[what]}
        faults += [
            f"{what[:-1]} {entry.get('name', entry.get('rule_name'))} has changed"
            for entry in before.document[what]
            if now.get(entry[key]) not in (entry, map_text.parsed_bucket(entry) if what == "buckets" else entry)
        ]
    faults += [
        f"tunable {name} is {after.tunables.get(name)}, was {value}"
        for name, value in before.tunables.items()
        if after.tunables.get(name) != value
    ]
    kept = after.document.get("choose_args", {})
    faults += [
        f"the weight set of {'all pools' if key == '-1' else f'pool {key}'} has changed"
        for key, entries in before.document.get("choose_args", {}).items()
        if [map_text.parsed_weight_set(e) for e in kept.get(key, ())]
        != [map_text.parsed_weight_set(e) for e in entries]
    ]
    if not faults and map_text.added_lines(before.text, after.text) is None:
        faults.append("a line of the text has changed")
    return tuple(faults)


@dataclass(frozen=True, slots=True)
class Movement:
    """The data that a change moves.

    Attributes:
        n_pgs: PGs with a changed set of OSDs.
        n_copies: copies (PG and OSD) that must be written.
        nbytes: to copy; None where the PGs' sizes are unknown.
    """

    n_pgs: int
    n_copies: int
    nbytes: int | None

    def __str__(self) -> str:
        if not self.n_pgs:
            return "nothing moves"
        size = "" if self.nbytes is None else f", {self.nbytes:,} bytes"
        return f"{self.n_pgs} PGs move, {self.n_copies} copies{size}"

    def as_json(self) -> dict[str, Any]:
        return {"pgs": self.n_pgs, "copies": self.n_copies, "nbytes": self.nbytes}


def movement(
    before: Mapping[str, Sequence[int]],
    after: Mapping[str, Sequence[int]],
    pg_nbytes: Mapping[str, int] | None = None,
    *,
    positional: frozenset[str] = frozenset(),
) -> Movement:
    """Compare the OSDs of PGs before and after a change.

    Args:
        before: PG to OSDs.
        after: the same; PGs that are not in both are omitted.
        pg_nbytes: bytes of one copy (or one chunk) of a PG.
        positional: PGs of erasure-coded pools, whose chunks belong to positions: a chunk that changes its
            position among the same OSDs is rewritten too.
    """
    moved = copies = nbytes = 0
    for pg, old in before.items():
        new = after.get(pg)
        if new is None:
            continue
        if pg in positional:
            gained = sum(a != b for a, b in zip(old, new, strict=False)) + max(0, len(new) - len(old))
        else:
            gained = len(set(new) - set(old) - {live_map.NOWHERE})
        moved += bool(gained)
        copies += gained
        nbytes += gained * (pg_nbytes or {}).get(pg, 0)
    return Movement(moved, copies, nbytes if pg_nbytes is not None else None)


@dataclass(frozen=True, slots=True)
class Wish:
    """One required rule of a cluster.

    Attributes:
        rule: its name.
        placement: required placement.
        size: copies or chunks that it must map.
        pg_num: of the pool that will use it; 0 if unknown.
        pool: number of that pool if it exists.
        where: for messages.
    """

    rule: str
    placement: Placement
    size: int
    pg_num: int = 0
    pool: int | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A changed map, tested but not injected.

    Attributes:
        before: the cluster's map.
        after: the map with the parts.
        parts: of each wish without an existing rule.
        trials: test results of each wish, in order.
        moved: data of existing pools that the new map would move; none, unless something is wrong.
        faults: why it must not be injected.
        warnings: sentences for the user.
    """

    before: LiveMap
    after: LiveMap
    parts: tuple[Parts, ...]
    trials: tuple[RuleTrial, ...]
    moved: Movement
    faults: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def added(self) -> tuple[str, ...]:
        """Return the lines that are added to the map's text."""
        return tuple(map_text.added_lines(self.before.text, self.after.text) or ())

    def as_json(self) -> dict[str, Any]:
        return {
            "added_lines": list(self.added),
            "rules": [trial.as_json() for trial in self.trials],
            "moved_by_the_map": self.moved.as_json(),
            "faults": list(self.faults),
            "warnings": list(self.warnings),
        }


def propose(admin: CephAdmin, live: LiveMap, wishes: Sequence[Wish]) -> Proposal:
    """Extend the map by what the wishes need and test it; changes nothing.

    Raises:
        InputError: a wish is impossible in this map.
        MapRefusedError: crushtool cannot process the live map.
    """
    return _Study(admin, live).propose(wishes)


class _Study:
    """Builds a changed map step by step and tests it."""

    def __init__(self, admin: CephAdmin, live: LiveMap) -> None:
        self._admin = admin
        self._live = live

    def propose(self, wishes: Sequence[Wish]) -> Proposal:
        changed = self._live
        made: list[Parts] = []
        all_parts: list[Parts] = []
        faults: list[str] = []
        for wish in wishes:
            bare = without_rule(changed, wish.rule)
            parts = render_parts(bare, wish.placement, wish.rule, where=wish.where)
            all_parts.append(parts)
            if bare is changed:
                changed = appended(changed, parts)
                made.append(parts)
            elif _steps(changed, wish.rule) != _steps(appended(bare, parts), wish.rule):
                faults.append(f"the map has a rule {wish.rule} that does something else")
        faults += differences(self._live, changed) if made else ()
        trials = []
        next_pool = self._next_pool
        for wish, parts in zip(wishes, all_parts, strict=True):
            trial = try_parts(
                changed,
                parts,
                size=wish.size,
                failure_domain=wish.placement.failure_domain,
                pool=wish.pool if wish.pool is not None else next_pool,
                pg_num=wish.pg_num,
                in_weights=self._in_weights,
            )
            next_pool += wish.pool is None
            trials.append(trial)
            faults += trial.faults(wish.placement.failure_domain)
        warnings = [w for parts in made for w in parts.warnings] + [w for t in trials for w in t.warnings()]
        moved = Movement(0, 0, 0)
        if made:
            moved = self._moved(changed)
            if moved.n_pgs:
                faults.append(f"the new map would move data of existing pools: {moved}")
            if changed.needs != self._live.needs:
                warnings.append(
                    f"clients older than {changed.needs} will no longer understand the map; it needs "
                    f"{self._live.needs or 'less'} now"
                )
        return Proposal(
            self._live, changed, tuple(made), tuple(trials), moved, tuple(faults), tuple(dict.fromkeys(warnings))
        )

    def _moved(self, changed: LiveMap) -> Movement:
        osd_map = self._admin.exchange("osd getmap")
        try:
            return movement(live_map.map_pgs(osd_map), live_map.map_pgs(osd_map, changed.binary))
        except NewerMapError:
            return movement(self._mapped_by_rules(self._live), self._mapped_by_rules(changed))

    def _mapped_by_rules(self, live: LiveMap) -> dict[str, tuple[int, ...]]:
        """Return PG id to its OSDs by the rules of a map alone, for pools whose pgp_num is their pg_num."""
        mapped: dict[str, tuple[int, ...]] = {}
        for pool in self._osd_dump["pools"]:
            places, _ = live_map.try_rule(
                live.binary,
                pool["crush_rule"],
                size=pool["size"],
                n_inputs=pool["pg_num"],
                pool=pool["pool"],
                in_weights=self._in_weights,
            )
            mapped |= {f"{pool['pool']}.{x:x}": osds for x, osds in places.items()}
        return mapped

    @cached_property
    def _osd_dump(self) -> dict[str, Any]:
        dump: dict[str, Any] = self._admin.command("osd dump")
        return dump

    @property
    def _next_pool(self) -> int:
        return int(self._osd_dump["pool_max"]) + 1

    @property
    def _in_weights(self) -> dict[int, float]:
        return {o["osd"]: float(o["weight"]) for o in self._osd_dump["osds"] if float(o["weight"]) != 1.0}


def appended(live: LiveMap, parts: Parts) -> LiveMap:
    """Return the map with parts added.

    Raises:
        MapRefusedError: crushtool rejects it.
    """
    text = map_text.append(
        map_text.exact(live.text, live.document),
        buckets=[p.text for p in parts.parts if p.kind == "bucket"],
        rules=[p.text for p in parts.parts if p.kind == "rule"],
    )
    return LiveMap.from_text(text)


def without_rule(live: LiveMap, rule: str) -> LiveMap:
    """Return the map without a rule of ours and its buckets, ready to render it again; unchanged without one."""
    if rule not in live.rules:
        return live
    names = [rule, *buckets_of(live, rule)]
    return LiveMap.from_text(map_text.without(map_text.exact(live.text, live.document), names))


def buckets_of(live: LiveMap, rule: str) -> tuple[str, ...]:
    """Return the buckets created for a rule of ours: its roots, and what is only in them."""
    found = []
    for root in (f"{rule}-devices", f"{rule}-primary-devices"):
        if root not in live.buckets:
            continue
        elsewhere = {item for b in live.buckets.values() if b.name != root for item in b.items}
        inner = live.buckets[root].items
        found += [root, *(b.name for b in live.buckets.values() if b.id in inner and b.id not in elsewhere)]
    return tuple(found)


def _steps(live: LiveMap, rule: str) -> Any:
    """Return a rule's steps by names; ids of buckets may differ."""
    entry = next(r for r in live.document["rules"] if r["rule_name"] == rule)
    return [{k: v for k, v in step.items() if k != "item"} for step in entry["steps"]]

"""A cluster's CRUSH map with parts appended, step by step, and the judgement on it before anything is injected."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cephfit.protocols import CephAdmin
from cephfit.sweep.crush import map_text, programs
from cephfit.sweep.crush.live_map import LiveMap
from cephfit.sweep.crush.parts import Parts, render_parts
from cephfit.sweep.crush.placement import Placement
from cephfit.sweep.crush.trial import Movement, RuleTrial, differences, movement, try_parts


@dataclass(frozen=True, slots=True)
class Wish:
    """One rule that a cluster shall have.

    Attributes:
        rule: its name.
        placement: where it shall put data.
        size: copies or chunks that it shall find places for.
        pg_num: of the pool that will use it; 0 if that is not known.
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
    """A changed map, tried but not injected.

    Attributes:
        before: the cluster's.
        after: with the parts.
        parts: of each wish whose rule is not there yet.
        trials: of each wish, in order.
        moved: data of the pools there are that the new map would move; none, unless something is wrong.
        faults: why it must not be injected.
        warnings: sentences for the person.
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
        """The lines that the map's text gets."""
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
    """The map with what the wishes need, tried; changes nothing.

    Raises:
        InputError: a wish that this map cannot have at all.
        MapRefusedError: the live map does not survive crushtool.
    """
    return _Study(admin, live).propose(wishes)


class _Study:
    """Builds a changed map step by step and judges it."""

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
                faults.append(f"the new map would move data of pools that are there: {moved}")
            if changed.needs != self._live.needs:
                warnings.append(
                    f"clients older than {changed.needs} will not understand the map any more; it needs "
                    f"{self._live.needs or 'less'} now"
                )
        return Proposal(
            self._live, changed, tuple(made), tuple(trials), moved, tuple(faults), tuple(dict.fromkeys(warnings))
        )

    def _moved(self, changed: LiveMap) -> Movement:
        osd_map = self._admin.exchange("osd getmap")
        return movement(programs.map_pgs(osd_map), programs.map_pgs(osd_map, changed.binary))

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
    """The map with parts in it.

    Raises:
        MapRefusedError: crushtool does not take it.
    """
    text = map_text.append(
        map_text.exact(live.text, live.document),
        buckets=[p.text for p in parts.parts if p.kind == "bucket"],
        rules=[p.text for p in parts.parts if p.kind == "rule"],
    )
    return LiveMap.from_text(text)


def without_rule(live: LiveMap, rule: str) -> LiveMap:
    """The map without a rule of ours and its buckets, as if it were to be rendered; itself if it has none."""
    if rule not in live.rules:
        return live
    names = [rule, *buckets_of(live, rule)]
    return LiveMap.from_text(map_text.without(map_text.exact(live.text, live.document), names))


def buckets_of(live: LiveMap, rule: str) -> tuple[str, ...]:
    """Buckets that were made for a rule of ours: its roots, and what is in them and nowhere else."""
    found = []
    for root in (f"{rule}-devices", f"{rule}-primary-devices"):
        if root not in live.buckets:
            continue
        elsewhere = {item for b in live.buckets.values() if b.name != root for item in b.items}
        inner = live.buckets[root].items
        found += [root, *(b.name for b in live.buckets.values() if b.id in inner and b.id not in elsewhere)]
    return tuple(found)


def _steps(live: LiveMap, rule: str) -> Any:
    """A rule's steps by names; ids of buckets may differ."""
    entry = next(r for r in live.document["rules"] if r["rule_name"] == rule)
    return [{k: v for k, v in step.items() if k != "item"} for step in entry["steps"]]

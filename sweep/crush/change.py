"""Parts appended to a cluster's own CRUSH map: tried offline, journalled, injected, and taken back whole."""

import base64
import errno
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cephfit.errors import ClusterError
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.crush import map_text, programs
from cephfit.sweep.crush.live_map import LiveMap
from cephfit.sweep.crush.parts import Parts, render_parts
from cephfit.sweep.crush.placement import Placement
from cephfit.sweep.crush.trial import Movement, RuleTrial, differences, movement, try_parts
from cephfit.sweep.journal import Journal

_ORIGINAL = "crush original"
_INJECTED = "crush injected"
_PART = "crush part"
_OTHERS = "crush changed by others"
_MAP = "map"


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


class FaultyMapError(ClusterError):
    """The changed map was found bad offline; nothing was injected."""


class CrushChanges:
    """Changes of one cluster's CRUSH map. Works from journal and cluster, never from memory.

    Args:
        admin: of the cluster.
        journal: keeps the original map before anything is injected.
    """

    def __init__(self, admin: CephAdmin, journal: Journal) -> None:
        self._admin = admin
        self._journal = journal

    def live(self) -> LiveMap:
        """The cluster's map now."""
        return LiveMap(self._admin.exchange("osd getcrushmap"))

    def propose(self, wishes: Sequence[Wish]) -> Proposal:
        """The map with what the wishes need, tried; changes nothing.

        Raises:
            InputError: a wish that this map cannot have at all.
            MapRefusedError: the live map does not survive crushtool.
        """
        return _Study(self._admin, self.live()).propose(wishes)

    def ensure(self, wishes: Sequence[Wish]) -> Proposal:
        """The cluster's map has what the wishes need when this returns; nothing is injected if it has already.

        Raises:
            FaultyMapError: what was tried offline was bad.
            ClusterError: somebody else changes the map at the same time.
        """
        version = self._version()
        proposal = self.propose(wishes)
        if proposal.faults:
            raise FaultyMapError(
                f"the CRUSH map is left as it is: {'; '.join(proposal.faults)}",
                where=", ".join(w.where or w.rule for w in wishes),
                remedy="name other devices, another failure domain or a smaller size",
            )
        if proposal.parts:
            self._inject(proposal, version)
        return proposal

    def restore(self) -> None:
        """The map as it was before; only our parts are taken out where somebody else changed it meanwhile.

        Raises:
            ClusterError: a pool that is not ours uses one of our rules.
        """
        original = self._journal.get(_ORIGINAL, _MAP)
        if original is None:
            return
        live, version = self.live(), self._version()
        before = LiveMap(base64.b64decode(original.was))
        self._refuse_used(live, before)
        known = {e.place for e in self._journal.entries(_INJECTED)}
        if live.digest != before.digest:
            if live.digest in known and self._journal.get(_OTHERS, _MAP) is None:
                self._set(before.binary, version)
            else:
                self._take_out(live, version)
        for entry in self._journal.entries():
            if entry.kind in (_PART, _INJECTED, _OTHERS):
                self._journal.forget(entry.kind, entry.place)
        self._journal.forget(_ORIGINAL, _MAP)

    def _inject(self, proposal: Proposal, version: int | None) -> None:
        live = proposal.before
        if not self._journal.note(_ORIGINAL, _MAP, base64.b64encode(live.binary).decode()):
            original = LiveMap(base64.b64decode(self._journal_original()))
            known = {original.digest, *(e.place for e in self._journal.entries(_INJECTED))}
            if live.digest not in known:
                self._journal.note(_OTHERS, _MAP, True)
        for parts in proposal.parts:
            for part in parts.parts:
                self._journal.note(_PART, f"{part.kind} {part.name}", None)
        self._journal.note(_INJECTED, proposal.after.digest, None)
        self._set(proposal.after.binary, version)
        if self.live().digest != proposal.after.digest:
            raise ClusterError(
                "the CRUSH map that the cluster has is not the one that was injected",
                where="osd setcrushmap",
                remedy="somebody else changes it too; start again when they are done",
            )

    def _journal_original(self) -> str:
        entry = self._journal.get(_ORIGINAL, _MAP)
        return str(entry.was) if entry is not None else ""

    def _take_out(self, live: LiveMap, version: int | None) -> None:
        names = {e.place.partition(" ")[2] for e in self._journal.entries(_PART)}
        ours = {name for name in names if name in live.rules or name in live.buckets}
        if not ours:
            return
        text = map_text.without(map_text.exact(live.text, live.document), ours)
        self._set(programs.compile_map(text), version)

    def _set(self, binary: bytes, version: int | None) -> None:
        guard = {} if version is None else {"prior_version": version}
        try:
            self._admin.exchange("osd setcrushmap", binary, **guard)
        except RefusedError as refused:
            if version is not None and refused.code == errno.EPERM:
                raise ClusterError(
                    f"somebody else changed the CRUSH map at this moment: {refused.what}",
                    where="osd setcrushmap",
                    remedy="start again when they are done; nothing was changed by us",
                ) from None
            raise

    def _version(self) -> int | None:
        """The monitors refuse a map that is not made from this version; None before Luminous."""
        version = self._admin.command("osd dump").get("crush_version")
        return None if version is None else int(version)

    def _refuse_used(self, live: LiveMap, before: LiveMap) -> None:
        """Raises:
        ClusterError: a pool uses a rule that is to go; the monitors would refuse with less to go by.
        """
        going = {i for name, i in live.rules.items() if self._journal.get(_PART, f"rule {name}")}
        users = [p["pool_name"] for p in self._admin.command("osd dump")["pools"] if p["crush_rule"] in going]
        if users:
            raise ClusterError(
                f"pool {', '.join(users)} uses a CRUSH rule that cephfit made",
                where="CRUSH map",
                remedy="move it to another rule (`ceph osd pool set POOL crush_rule RULE`) or delete it; then again",
            )


class _Study:
    """Builds a changed map step by step and judges it."""

    def __init__(self, admin: CephAdmin, live: LiveMap) -> None:
        self._admin = admin
        self._live = live

    def propose(self, wishes: Sequence[Wish]) -> Proposal:
        changed, made, all_parts = self._live, [], []
        for wish in wishes:
            parts = render_parts(
                self._without_rule(changed, wish.rule), wish.placement, wish.rule, where=wish.where
            )
            all_parts.append(parts)
            if wish.rule not in changed.rules:
                changed = appended(changed, parts)
                made.append(parts)
        faults = list(differences(self._live, changed)) if made else []
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

    @staticmethod
    def _without_rule(live: LiveMap, rule: str) -> LiveMap:
        """A map in which the parts can be rendered (for their OSDs) although they are there already."""
        if rule not in live.rules:
            return live
        names = [rule, *(b for b in live.buckets if b.startswith(f"{rule}-"))]
        return LiveMap.from_text(map_text.without(map_text.exact(live.text, live.document), names))

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

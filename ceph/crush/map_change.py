"""Parts appended to a cluster's CRUSH map: tested offline, journalled, injected, and removed again."""

import base64
import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.crush import live_map, map_text
from cephfit.ceph.crush.live_map import LiveMap
from cephfit.ceph.crush.map_parts import render_parts
from cephfit.ceph.crush.map_proposal import Proposal, Wish, buckets_of, propose, without_rule
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin

_ORIGINAL = "crush original"
_INJECTED = "crush injected"
_PART = "crush part"
_OTHERS = "crush changed by others"
_BEFORE_DELETION = "crush before a deletion"
_MAP = "map"


class FaultyMapError(ClusterError):
    """The changed map failed the offline test; nothing was injected."""


class CrushChanges:
    """Changes one cluster's CRUSH map. Reads its state from journal and cluster, never from memory.

    Args:
        admin: of the cluster.
        journal: keeps the original map before anything is injected.
    """

    def __init__(self, admin: CephAdmin, journal: Journal) -> None:
        self._admin = admin
        self._journal = journal

    def live(self) -> LiveMap:
        """Read the cluster's present map."""
        return LiveMap(self._admin.exchange("osd getcrushmap"))

    def propose(self, wishes: Sequence[Wish]) -> Proposal:
        """Extend the map by what the wishes need and test it; changes nothing.

        Raises:
            InputError: a wish is impossible in this map.
            MapRefusedError: crushtool cannot process the live map.
        """
        return propose(self._admin, self.live(), wishes)

    def ensure(self, wishes: Sequence[Wish]) -> Proposal | None:
        """Inject what the wishes need into the cluster's map; None if all of it is already there.

        Raises:
            FaultyMapError: the offline test failed.
            ClusterError: another client changes the map at the same time.
        """
        rules = set(self._admin.command("osd crush rule ls"))
        if all(w.rule in rules and self._has_part("rule", w.rule) for w in wishes):
            return None
        version = self._version()  # before the map: see _live_with_version
        proposal = self.propose(wishes)
        if proposal.faults:
            raise FaultyMapError(
                f"the CRUSH map is not changed: {'; '.join(proposal.faults)}",
                where=", ".join(w.where or w.rule for w in wishes),
                remedy="choose other devices, another failure domain or a smaller size",
            )
        if proposal.parts:
            self._inject(proposal, version)
        return proposal

    def osds_for(self, wish: Wish) -> tuple[Mapping[int, int], ...]:
        """Return the OSDs that a wish's rule may use, with weights; separate primaries come first."""
        live = without_rule(self.live(), wish.rule)
        return render_parts(live, wish.placement, wish.rule, where=wish.where).osds

    @contextmanager
    def keeping_rules(self) -> Iterator[None]:
        """Keep all rules while an erasure-coded pool is deleted within the block.

        Since 20.2.4, monitors remove the rule of such a pool with it if no other pool uses the rule, even one that
        was there before the pool (https://github.com/ceph/ceph/pull/69075).
        """
        self._put_rules_back()
        binary = self._admin.exchange("osd getcrushmap")
        self._journal.note(_BEFORE_DELETION, _MAP, base64.b64encode(binary).decode())
        yield
        self._put_rules_back()

    def _put_rules_back(self) -> None:
        """Add the rules that are missing since ``keeping_rules`` began, also after a kill."""
        entry = self._journal.get(_BEFORE_DELETION, _MAP)
        if entry is None:
            return
        binary, version = base64.b64decode(entry.was), self._version()
        now_binary = self._admin.exchange("osd getcrushmap")
        if now_binary != binary:
            before, now = LiveMap(binary), LiveMap(now_binary)
            if missing := before.rules.keys() - now.rules.keys():
                self._set(_with_rules(before, now, missing), version)
        self._journal.forget(_BEFORE_DELETION, _MAP)

    def restore(self) -> None:
        """Restore the original map; if another client changed it meanwhile, remove only our parts.

        Raises:
            ClusterError: another pool uses one of our rules.
        """
        self._put_rules_back()
        original = self._journal.get(_ORIGINAL, _MAP)
        if original is None:
            return
        live, version = self._live_with_version()
        before = LiveMap(base64.b64decode(original.was))
        self._refuse_used(live, {e.place.partition(" ")[2] for e in self._journal.entries(_PART)})
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

    def remove(self, rules: Iterable[str]) -> None:
        """Remove these rules and their buckets; like ``restore`` if the map has no other parts of ours.

        Raises:
            ClusterError: a pool uses one of them.
        """
        self._put_rules_back()
        live, version = self._live_with_version()
        names = {
            name for rule in rules if self._has_part("rule", rule) for name in (rule, *buckets_of(live, rule))
        }
        ours = {e.place.partition(" ")[2] for e in self._journal.entries(_PART)}
        if ours <= names:
            self.restore()
            return
        self._refuse_used(live, names)
        there = [name for name in names if name in live.rules or name in live.buckets]
        if there:
            changed = LiveMap.from_text(map_text.without(map_text.exact(live.text, live.document), there))
            self._journal.note(_INJECTED, changed.digest, None)
            self._set(changed.binary, version)
        for entry in self._journal.entries(_PART):
            if entry.place.partition(" ")[2] in names:
                self._journal.forget(_PART, entry.place)

    def _has_part(self, kind: str, name: str) -> bool:
        return self._journal.get(_PART, f"{kind} {name}") is not None

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
        now = self.live()
        if now.digest != proposal.after.digest and _same_map(now.document, proposal.after.document):
            self._journal.note(_INJECTED, now.digest, None)
        elif now.digest != proposal.after.digest:
            raise ClusterError(
                "the cluster's CRUSH map differs from the injected one",
                where="osd setcrushmap",
                remedy="another client is changing it too; run the command again after that",
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
        self._set(live_map.compile_map(text), version)

    def _set(self, binary: bytes, version: int | None) -> None:
        guard = {} if version is None else {"prior_version": version}
        try:
            self._admin.exchange("osd setcrushmap", binary, **guard)
        except RefusedError as refused:
            if version is not None and refused.code == errno.EPERM:
                raise ClusterError(
                    f"another client changed the CRUSH map at this moment: {refused.what}",
                    where="osd setcrushmap",
                    remedy="start again after that; cephfit changed nothing",
                ) from None
            raise

    def _live_with_version(self) -> tuple[LiveMap, int | None]:
        """Read the map's version, then the map.

        The order matters: with a version newer than the map, the monitors would accept a change of the older map,
        and a change by another client in between would be lost.
        """
        version = self._version()
        return self.live(), version

    def _version(self) -> int | None:
        """Read the version that the monitors compare with an injected map's; None before Luminous."""
        version = self._admin.command("osd dump").get("crush_version")
        return None if version is None else int(version)

    def _refuse_used(self, live: LiveMap, names: Set[str]) -> None:
        """Check that no pool uses a rule that is about to be removed; the monitors' error would say less.

        Raises:
            ClusterError: a pool uses one.
        """
        going = {i for name, i in live.rules.items() if name in names and self._has_part("rule", name)}
        users = [p["pool_name"] for p in self._admin.command("osd dump")["pools"] if p["crush_rule"] in going]
        if users:
            raise ClusterError(
                f"pool {', '.join(users)} uses a CRUSH rule that cephfit created",
                where="CRUSH map",
                remedy="delete it, or run `ceph osd pool set POOL crush_rule RULE` with another rule",
            )


def _same_map(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two maps are the same to a cluster that is newer than this machine's crushtool.

    It adds fields that crushtool does not know, with their defaults, and since Reef ignores the sizes of rules.
    """

    def without_sizes(document: Mapping[str, Any]) -> dict[str, Any]:
        rules = [{k: v for k, v in r.items() if k not in ("min_size", "max_size")} for r in document["rules"]]
        return {**document, "rules": rules}

    return without_sizes(one) == without_sizes(other)


def _with_rules(before: LiveMap, now: LiveMap, rules: Set[str]) -> bytes:
    """Return the present map with rules of the map before; that map itself if they are the only difference."""
    if _content(before, without=rules) == _content(now):
        return before.binary
    texts = map_text.rule_texts(before.text, rules)
    return live_map.compile_map(map_text.append(map_text.exact(now.text, now.document), buckets=(), rules=texts))


def _content(live: LiveMap, without: Set[str] = frozenset()) -> dict[str, Any]:
    """Return a map's content but these rules and the shadow trees, which monitors derive again at some changes."""
    document = live.document
    shadows = {bucket["id"] for bucket in document["buckets"] if "~" in bucket["name"]}
    weight_sets = {
        pool: [entry for entry in entries if entry["bucket_id"] not in shadows]
        for pool, entries in document.get("choose_args", {}).items()
    }
    return {
        **document,
        "tunables": live.tunables,
        "rules": [rule for rule in document["rules"] if rule["rule_name"] not in without],
        "buckets": [bucket for bucket in document["buckets"] if bucket["id"] not in shadows],
        "choose_args": weight_sets,
    }

"""Declared pools: planned against a cluster, created, changed and removed.

These are permanent pools of a cluster. They have a separate journal: ``cephfit restore`` undoes the changes of
sweeps and keeps these pools and their data.
"""

import errno
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit.ceph.admin.answers import RefusedError, listed_pgs, stored_nbytes
from cephfit.ceph.admin.daemons import running_daemons
from cephfit.ceph.crush import live_map
from cephfit.ceph.crush.map_proposal import Movement, Proposal, movement
from cephfit.ceph.options.option import same_value
from cephfit.ceph.pools.osd_capacity import few_pgs_of, pool_defaults
from cephfit.ceph.pools.own_pools import PoolDeletion, Pools
from cephfit.ceph.pools.pool_keys import (
    PLACING_KEYS,
    VALUE_TYPES,
    code_differences,
    profile_of,
    release_note,
    value_that_unsets,
    why_no_tiers,
)
from cephfit.ceph.pools.pool_plan import PoolPlan, Role, own_rule, plan_pools
from cephfit.ceph.pools.pool_readback import dumped_pool, mapped_pgs, pool_value, read_back_pools
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.configuration import Partition, Setting

CODE = "erasure."
"""Prefix of the erasure code's keys among a pool's values."""


@dataclass(frozen=True, slots=True)
class PoolChange:
    """One pool: present and required state.

    Attributes:
        plan: required pool.
        state: ``new``; ``ours`` (created by cephfit); ``adopted`` (existed before, may be changed); ``theirs``
            (existed before, must not be changed).
        values: key to (present value, required value) where they differ; None without a present value. With
            ``size`` there is always ``min_size``, after it.
        moved: data that these changes move.
    """

    plan: PoolPlan
    state: str
    values: Mapping[str, tuple[str | None, str]]
    moved: Movement

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of all required values."""
        return tuple(_required(self.plan))

    def as_json(self) -> dict[str, Any]:
        return {
            "pool": self.plan.name,
            "role": self.plan.role.value,
            "state": self.state,
            "place": str(self.plan.placement) if self.plan.placement else self.plan.values.get("crush_rule", ""),
            "rule": self.plan.rule or self.plan.values.get("crush_rule", ""),
            "size": self.plan.size,
            "erasure": dict(self.plan.erasure),
            "values": {key: {"now": now, "then": then} for key, (now, then) in self.values.items()},
            "moved": self.moved.as_json(),
        }


@dataclass(frozen=True, slots=True)
class PoolsPlan:
    """The plan of a pool file for a cluster.

    Attributes:
        changes: one per pool.
        proposal: of the CRUSH map; None where no pool needs a new rule.
        faults: why it must not be applied.
        warnings: sentences for the user.
    """

    changes: tuple[PoolChange, ...]
    proposal: Proposal | None
    faults: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "pools": [change.as_json() for change in self.changes],
            "crush": self.proposal.as_json() if self.proposal else None,
            "faults": list(self.faults),
            "warnings": list(self.warnings),
        }


def faults_of(change: PoolChange) -> Sequence[str]:
    """Return why an existing pool must not be changed like this."""
    plan = change.plan
    if code := {k: pair for k, pair in change.values.items() if k.startswith(CODE)}:
        reported = ", ".join(f"{k.removeprefix(CODE)} = {now or 'none'}" for k, (now, _) in code.items())
        required = ", ".join(f"{k.removeprefix(CODE)} = {then}" for k, (_, then) in code.items())
        return [
            f"the erasure code of pool {plan.name} has {reported}, not {required}: a pool keeps the code it was "
            "created with (declare another pool and copy the images)"
        ]
    if change.state == "theirs" and change.values:
        return [f"pool {plan.name} existed before; cephfit does not change it without --adopt {plan.name}"]
    if change.state == "adopted" and (plan.erasure or plan.role is not Role.BASE):
        return [
            f"pool {plan.name} exists: its values and placement can change, but it cannot get a code or a tier"
        ]
    return []


def faults_together(changes: Sequence[PoolChange]) -> Sequence[str]:
    """Return why the pools of one declaration (pool, data, cache tier) must not be changed like this."""
    foreign = [c.plan.name for c in changes if c.state in ("theirs", "adopted")]
    if not foreign or len(foreign) == len(changes):
        return []
    return [
        f"pool {', '.join(foreign)} existed before: its values and placement can change, but it cannot get a "
        "code or a tier"
    ]


_VALUE = "pool value"


def moved_by_undoing(entries: Iterable[Entry], change: PoolChange | None) -> tuple[str, ...]:
    """Return the values of adopted pools whose undoing moves data, such as ``crush_rule of pool vms``.

    Args:
        entries: of a journal, of any kind.
        change: sets some of these values again; None for no change.
    """
    kept = set() if change is None else {(change.plan.name, key) for key in change.keys}
    places = [entry.place.rpartition(" ")[::2] for entry in entries if entry.kind == _VALUE]
    moved = [(pool, key) for pool, key in places if key in PLACING_KEYS and (pool, key) not in kept]
    return tuple(f"{key} of pool {pool}" for pool, key in moved)


PoolSettings = Mapping[str, Mapping[str, str]]
"""Pool name to its settings: key to value as Ceph writes it."""


class DeclaredPools:
    """The declared pools of one cluster.

    Args:
        admin: of the cluster.
        journal: of declared pools only.
        deletion: permits the deletion of the cluster's pools.
    """

    def __init__(self, admin: CephAdmin, journal: Journal, deletion: PoolDeletion) -> None:
        self._admin = admin
        self._journal = journal
        self._deletion = deletion
        self._pools = Pools(admin, journal, {})

    def plan(self, declared: PoolSettings, *, adopt: frozenset[str] = frozenset()) -> PoolsPlan:
        """Plan the changes; changes nothing.

        Args:
            declared: the pools.
            adopt: existing pools that may be changed.

        Raises:
            InputError: a declaration contradicts itself, or needs something that the map does not have.
        """
        groups = self._plans(declared).values()
        plans = [plan for pool in groups for plan in pool]
        wishes = self._pools.wishes(plans, where="declared pools")
        proposal = self._pools.places.propose(wishes) if wishes else None
        together = [tuple(self._change(plan, proposal, adopt) for plan in pool) for pool in groups]
        changes = tuple(change for pool in together for change in pool)
        faults = list(proposal.faults) if proposal else []
        faults += [fault for change in changes for fault in faults_of(change)]
        faults += [fault for pool in together for fault in faults_together(pool)]
        warnings = list(proposal.warnings) if proposal else []
        if new := [pool for pool, found in zip(groups, together, strict=True) if found[0].state == "new"]:
            warnings += few_pgs_of(self._admin, new)
        if any(plan.role is Role.CACHE for plan in plans):
            faults += filter(None, [why_no_tiers(self._admin)])
            warnings += filter(None, [release_note(self._release())])
        return PoolsPlan(changes, proposal, tuple(faults), tuple(warnings))

    def apply(self, declared: PoolSettings, *, adopt: frozenset[str] = frozenset()) -> PoolsPlan:
        """Create the pools and apply the changes; a new start after a kill continues.

        Raises:
            ClusterError: the plan has faults; nothing was changed.
        """
        self._clean_up()
        plan = self.plan(declared, adopt=adopt)
        if plan.faults:
            raise ClusterError(
                f"nothing was changed: {'; '.join(plan.faults)}",
                where="declared pools",
                remedy="`cephfit pools plan` shows everything",
            )
        changes = {change.plan.name: change for change in plan.changes}
        for name, plans in self._plans(declared).items():
            change = changes[plans[0].name]
            if change.state == "adopted":
                self._adopt(change)
            elif change.state != "theirs":  # an existing pool is as declared, else the plan has a fault
                self._pools.make(plans, where=f"pool {name}")
            self._require_as_declared(name, plans, declared[name], change.state)
        return plan

    def remove(self, declared: PoolSettings, *, with_data: bool = False) -> tuple[str, ...]:
        """Delete the pools that cephfit created, restore the values of adopted ones, and remove the CRUSH rules.

        Args:
            declared: the pools.
            with_data: also delete pools with data.

        Returns:
            What was done, in sentences.

        Raises:
            ClusterError: a pool holds data; nothing was changed.
        """
        self._clean_up()
        plans = self._plans(declared)
        made = [pool for pool in self._pools.created() if any(pool == p.name for g in plans.values() for p in g)]
        holding = {pool: n for pool in made if (n := self._stored_nbytes(pool))}
        if holding and not with_data:
            raise ClusterError(
                "; ".join(f"pool {pool} holds {n:,} bytes" for pool, n in holding.items()),
                where="declared pools",
                remedy="move the data elsewhere, or add --with-data if it is not needed",
            )
        done = [sentence for name in plans for sentence in self._give_back(name)]
        if made:
            with self._deletion.allowed():
                for pool in reversed(made):
                    self._pools.delete(pool)
                    done.append(f"pool {pool} is deleted")
        self._pools.places.remove({p.rule for group in plans.values() for p in group if p.rule})
        if not self._journal.entries():
            self._journal.finish()
        return tuple(done)

    def to_remove(self, declared: PoolSettings) -> tuple[str, ...]:
        """Return what ``remove`` would do, in sentences; changes nothing."""
        plans = self._plans(declared)
        named = {plan.name for group in plans.values() for plan in group}
        values = [e.place.rpartition(" ") for e in self._journal.entries(_VALUE)]
        return (
            *(f"pool {pool} would get its original {key}" for pool, _, key in values if pool in named),
            *(
                f"pool {pool} would be deleted with {self._stored_nbytes(pool):,} bytes in it"
                for pool in self._pools.created()
                if pool in named
            ),
        )

    def give_back(self, *, but: Mapping[str, Collection[str]] | None = None) -> None:
        """Restore the original values of adopted pools.

        Args:
            but: pool to keys that keep their present values.
        """
        for pool in dict.fromkeys(e.place.rpartition(" ")[0] for e in self._journal.entries(_VALUE)):
            self._give_back(pool, (but or {}).get(pool, ()))

    def _clean_up(self) -> None:
        """Clean up after a process that was killed while it deleted pools."""
        self._deletion.take_over(self._journal)
        self._deletion.take_back()

    def _plans(self, declared: PoolSettings) -> dict[str, tuple[PoolPlan, ...]]:
        return {
            name: plan_pools(name, settings, {}, rule_of=own_rule, where=f"pool {name}")
            for name, settings in declared.items()
        }

    def _change(self, plan: PoolPlan, proposal: Proposal | None, adopt: frozenset[str]) -> PoolChange:
        dumped = self._dumped(plan.name)
        if dumped is None:
            return PoolChange(plan, "new", {k: (None, v) for k, v in _required(plan).items()}, Movement(0, 0, 0))
        is_ours = plan.name in self._pools.created()
        state = "ours" if is_ours else "adopted" if plan.name in adopt else "theirs"
        values = self._differences(plan, dumped)
        return PoolChange(plan, state, values, self._moved(plan, dumped, values, proposal))

    def _differences(self, plan: PoolPlan, dumped: Mapping[str, Any]) -> dict[str, tuple[str | None, str]]:
        """Return key to (present value, planned value), where an existing pool differs from its plan.

        Ceph resets ``min_size`` whenever ``size`` is set, also to its present value
        (OSDMonitor::prepare_command_pool_set). So ``min_size`` follows each change of ``size``.
        """
        required = _required(plan)
        # PGs are split and merged a few at a time: the monitors' target counts.
        heading_for = {
            "pg_num": dumped.get("pg_num_target"),
            "pgp_num": dumped.get("pg_placement_num_target"),
        }
        now = {key: heading_for.get(key) or self._value(plan.name, key) for key in (*required, "min_size")}

        def differs(key: str) -> bool:
            got = now[key]
            return got is None or not same_value(VALUE_TYPES.get(key, "str"), required[key], str(got))

        is_resized = "size" in required and differs("size")
        if is_resized or ("size" in required and self._journal.get(_VALUE, f"{plan.name} min_size")):
            required.setdefault("min_size", self._default_min_size(required["size"]))
        values = {
            key: (None if now[key] is None else str(now[key]), required[key])
            for key in sorted(required, key=_place_of)
            if differs(key) or (is_resized and key == "min_size")
        }
        if plan.erasure:
            profile = profile_of(self._admin, dumped.get("erasure_code_profile", ""))
            values |= {f"{CODE}{key}": pair for key, pair in code_differences(plan.erasure, profile).items()}
        return values

    def _require_as_declared(
        self, name: str, plans: Sequence[PoolPlan], settings: Mapping[str, str], state: str
    ) -> None:
        """Check that the cluster has what was declared.

        Raises:
            ClusterError: it does not.
        """
        faults = []
        for plan in plans:
            values = self._differences(plan, dumped_pool(self._admin, plan.name))
            faults += [f"pool {plan.name} has {key} = {now}, not {then}" for key, (now, then) in values.items()]
        if state in ("new", "ours"):  # data of existing pools is still moving
            wishes = self._pools.wishes(plans, where=f"pool {name}")
            allowed = {w.rule: self._pools.places.osds_for(w) for w in wishes}
            given = [Setting(Partition.POOL, "pool", key, value) for key, value in settings.items()]
            faults += read_back_pools(self._admin, plans, given, allowed)[1]
        if faults:
            raise ClusterError(
                f"it differs from its declaration: {'; '.join(dict.fromkeys(faults))}",
                where=f"pool {name}",
                remedy="`cephfit pools plan` shows the differences; the same command tries again",
            )

    def _moved(
        self,
        plan: PoolPlan,
        dumped: Mapping[str, Any],
        values: Mapping[str, tuple[str | None, str]],
        proposal: Proposal | None,
    ) -> Movement:
        """Return the OSDs of an existing pool's PGs, now and under its new rule and size."""
        if not set(PLACING_KEYS) & set(values):
            return Movement(0, 0, 0)
        number, n_pgs = int(dumped["pool"]), int(dumped["pg_num"])
        live = proposal.after if proposal is not None else self._pools.places.live()
        wanted_rule = plan.rule or plan.values.get("crush_rule")
        rule = live.rules.get(wanted_rule, -1) if wanted_rule else int(dumped["crush_rule"])
        if rule < 0:
            raise InputError(
                f"this cluster has no CRUSH rule {wanted_rule}",
                where=f"pool {plan.name}",
                remedy=f"there are {', '.join(live.rules)}",
            )
        size = int(plan.values.get("size", dumped["size"]))
        places, _ = live_map.try_rule(live.binary, rule, size=size, n_inputs=n_pgs, pool=number)
        after = {f"{number}.{x:x}": osds for x, osds in places.items()}
        stats = listed_pgs(self._admin.command("pg ls-by-pool", poolstr=plan.name)) or ()
        now = mapped_pgs(self._admin, self._admin.exchange("osd getmap"), [plan.name])
        before = {pg: osds for pg, osds in now.items() if pg in after}
        shares = int(plan.erasure["k"]) if plan.erasure else 1
        nbytes = {pg["pgid"]: int(pg["stat_sum"]["num_bytes"]) // shares for pg in stats}
        return movement(before, after, nbytes, positional=frozenset(after) if plan.erasure else frozenset())

    def _adopt(self, change: PoolChange) -> None:
        plan = change.plan
        if plan.placement is not None:
            self._pools.places.ensure(self._pools.wishes([plan], where=f"pool {plan.name}"))
        # The size is noted last: undoing it resets min_size, whose original value must be known then.
        for key in sorted(change.values, key=_place_of, reverse=True):
            self._journal.note(_VALUE, f"{plan.name} {key}", change.values[key][0])
        for key, (_, then) in change.values.items():
            self._set(plan.name, key, then)

    def _give_back(self, name: str, but: Collection[str] = ()) -> list[str]:
        done = []
        entries = [(*e.place.rpartition(" ")[::2], e) for e in reversed(self._journal.entries(_VALUE))]
        for pool, key, entry in sorted(entries, key=lambda found: _place_of(found[1])):
            if pool != name or key in but or (key == "min_size" and "size" in but):
                continue
            if self._dumped(pool) is not None:
                self._set(pool, key, value_that_unsets(key) if entry.was is None else str(entry.was))
                done.append(f"pool {pool} has {key} = {'nothing' if entry.was is None else entry.was} again")
            self._journal.forget(_VALUE, entry.place)
        return done

    def _default_min_size(self, size: str) -> str:
        return str(pool_defaults(self._admin, running_daemons(self._admin)).min_size_of(int(size)))

    def _set(self, pool: str, key: str, value: str) -> None:
        sure = {"yes_i_really_mean_it": True} if (key, value) == ("size", "1") else {}
        self._admin.command("osd pool set", pool=pool, var=key, val=value, **sure)

    def _value(self, pool: str, key: str) -> str | None:
        try:
            got = pool_value(self._admin, pool, key)
        except RefusedError as refused:
            if refused.code in (errno.EACCES, errno.EINVAL):  # a tier's value on a pool that is not a tier yet
                return None
            raise
        return None if got is None else str(got)

    def _stored_nbytes(self, pool: str) -> int:
        """Return bytes of clients. Objects do not count: a manager module keeps empty ones in image pools."""
        stats = {p["name"]: p["stats"] for p in self._admin.command("df")["pools"]}.get(pool, {})
        return stored_nbytes(stats)

    def _dumped(self, name: str) -> dict[str, Any] | None:
        return next((p for p in self._admin.command("osd dump")["pools"] if p["pool_name"] == name), None)

    def _release(self) -> str:
        words = next(iter(self._admin.command("versions")["mon"]), "").split()
        return words[2] if len(words) > 2 else ""


def _place_of(key: str) -> int:
    """Return the sort key of a change and of its undoing: ``size``, then ``min_size``, then the others."""
    return ("size", "min_size").index(key) if key in ("size", "min_size") else 2


def _required(plan: PoolPlan) -> dict[str, str]:
    return {**plan.values, **({"crush_rule": plan.rule} if plan.rule else {})}

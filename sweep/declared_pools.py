"""Pools that people declare for a cluster to keep: planned against it, made, changed, and taken away again.

They have a journal of their own: ``cephfit restore`` undoes what sweeps did and leaves these pools and their data.
"""

import errno
from collections.abc import Mapping, Sequence
from typing import Any

from cephfit.configuration import Partition, Setting
from cephfit.errors import ClusterError, InputError
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.admin.older_releases import listed_pgs, stored_nbytes
from cephfit.sweep.crush import programs
from cephfit.sweep.crush.proposal import Proposal
from cephfit.sweep.crush.trial import Movement, movement
from cephfit.sweep.journal import Journal
from cephfit.sweep.options.option_value import same_value
from cephfit.sweep.pools.cache_tier import release_note, why_no_tiers
from cephfit.sweep.pools.erasure import code_differences, profile_of
from cephfit.sweep.pools.own_pools import Pools
from cephfit.sweep.pools.pool_changes import CODE, PoolChange, PoolsPlan, faults_of, faults_together
from cephfit.sweep.pools.pool_keys import VALUE_TYPES
from cephfit.sweep.pools.pool_plan import PoolPlan, Role, own_rule, plan_pools
from cephfit.sweep.pools.pool_readback import dumped_pool, pool_value, read_back_pools
from cephfit.sweep.settings.pool_deletion import PoolDeletion
from cephfit.sweep.targets.beneath import few_pgs_of

_VALUE = "pool value"

PoolSettings = Mapping[str, Mapping[str, str]]
"""Pool's name to its settings: key to value as Ceph writes it."""


class DeclaredPools:
    """The declared pools of one cluster.

    Args:
        admin: of the cluster.
        journal: of declared pools only.
        deletion: by whose leave the cluster's pools are deleted.
    """

    def __init__(self, admin: CephAdmin, journal: Journal, deletion: PoolDeletion) -> None:
        self._admin = admin
        self._journal = journal
        self._deletion = deletion
        self._pools = Pools(admin, journal, {})

    def plan(self, declared: PoolSettings, *, adopt: frozenset[str] = frozenset()) -> PoolsPlan:
        """What would be done; changes nothing.

        Args:
            declared: the pools.
            adopt: pools that were there before and may be changed all the same.

        Raises:
            InputError: a pool contradicts itself, or wants what the map does not have.
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
        """Make the pools and the changes; started again after a kill, it goes on.

        Raises:
            ClusterError: the plan has faults; nothing was changed.
        """
        self._clear_up()
        plan = self.plan(declared, adopt=adopt)
        if plan.faults:
            raise ClusterError(
                f"nothing was changed: {'; '.join(plan.faults)}",
                where="declared pools",
                remedy="`cephfit pools plan` shows it all",
            )
        changes = {change.plan.name: change for change in plan.changes}
        for name, plans in self._plans(declared).items():
            change = changes[plans[0].name]
            if change.state == "adopted":
                self._adopt(change)
            elif change.state != "theirs":  # theirs is as declared, else the plan has a fault
                self._pools.make(plans, where=f"pool {name}")
            self._require_as_declared(name, plans, declared[name], change.state)
        return plan

    def remove(self, declared: PoolSettings, *, with_data: bool = False) -> tuple[str, ...]:
        """Delete the pools that we made; give adopted ones their values back; take the rules out of the map.

        Args:
            declared: the pools.
            with_data: also where there is data in them.

        Returns:
            What was done, in sentences.

        Raises:
            ClusterError: a pool holds data; nothing was changed.
        """
        self._clear_up()
        plans = self._plans(declared)
        made = [
            pool for pool in self._pools.made() if any(pool == p.name for group in plans.values() for p in group)
        ]
        holding = {pool: n for pool in made if (n := self._stored_nbytes(pool))}
        if holding and not with_data:
            raise ClusterError(
                "; ".join(f"pool {pool} holds {n:,} bytes" for pool, n in holding.items()),
                where="declared pools",
                remedy="move the data away, or add --with-data if nobody needs it",
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
        """What ``remove`` would do, in sentences; changes nothing."""
        plans = self._plans(declared)
        named = {plan.name for group in plans.values() for plan in group}
        values = [e.place.rpartition(" ") for e in self._journal.entries(_VALUE)]
        return (
            *(f"pool {pool} would get its {key} back" for pool, _, key in values if pool in named),
            *(
                f"pool {pool} would be deleted with {self._stored_nbytes(pool):,} bytes in it"
                for pool in self._pools.made()
                if pool in named
            ),
        )

    def _clear_up(self) -> None:
        """After a process that was killed while it deleted pools."""
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
            return PoolChange(plan, "new", {k: (None, v) for k, v in _wanted(plan).items()}, Movement(0, 0, 0))
        is_ours = plan.name in self._pools.made()
        state = "ours" if is_ours else "adopted" if plan.name in adopt else "theirs"
        values = self._differences(plan, dumped)
        return PoolChange(plan, state, values, self._moved(plan, dumped, values, proposal))

    def _differences(self, plan: PoolPlan, dumped: Mapping[str, Any]) -> dict[str, tuple[str | None, str]]:
        """Key to value now and then, of what a pool that is there has otherwise than planned."""
        wanted = _wanted(plan)
        # PGs are split and merged a few at a time: what the monitors are heading for counts.
        heading_for = {
            "pg_num": dumped.get("pg_num_target"),
            "pgp_num": dumped.get("pg_placement_num_target"),
        }
        now = {key: heading_for.get(key) or self._value(plan.name, key) for key in wanted}
        values = {
            key: (None if now[key] is None else str(now[key]), then)
            for key, then in wanted.items()
            if now[key] is None or not same_value(VALUE_TYPES.get(key, "str"), then, str(now[key]))
        }
        if plan.erasure:
            profile = profile_of(self._admin, dumped.get("erasure_code_profile", ""))
            values |= {f"{CODE}{key}": pair for key, pair in code_differences(plan.erasure, profile).items()}
        return values

    def _require_as_declared(
        self, name: str, plans: Sequence[PoolPlan], settings: Mapping[str, str], state: str
    ) -> None:
        """Raises:
        ClusterError: what the cluster has now is not what was declared.
        """
        faults = []
        for plan in plans:
            values = self._differences(plan, dumped_pool(self._admin, plan.name))
            faults += [f"pool {plan.name} has {key} = {now}, not {then}" for key, (now, then) in values.items()]
        if state in ("new", "ours"):  # data of pools that were there is still on its way
            wishes = self._pools.wishes(plans, where=f"pool {name}")
            allowed = {w.rule: self._pools.places.osds_for(w) for w in wishes}
            said = [Setting(Partition.POOL, "pool", key, value) for key, value in settings.items()]
            faults += read_back_pools(self._admin, plans, said, allowed)[1]
        if faults:
            raise ClusterError(
                f"it is not as declared: {'; '.join(dict.fromkeys(faults))}",
                where=f"pool {name}",
                remedy="`cephfit pools plan` shows what differs; the same command tries it again",
            )

    def _moved(
        self,
        plan: PoolPlan,
        dumped: Mapping[str, Any],
        values: Mapping[str, tuple[str | None, str]],
        proposal: Proposal | None,
    ) -> Movement:
        """PGs of a pool that is there, where they are and where its new rule and size put them."""
        if not {"crush_rule", "size", "pg_num", "pgp_num"} & set(values):
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
        places, _ = programs.try_rule(live.binary, rule, size=size, n_inputs=n_pgs, pool=number)
        after = {f"{number}.{x:x}": osds for x, osds in places.items()}
        now = programs.map_pgs(self._admin.exchange("osd getmap"))
        before = {pg: osds for pg, osds in now.items() if pg in after}
        shares = int(plan.erasure["k"]) if plan.erasure else 1
        stats = listed_pgs(self._admin.command("pg ls-by-pool", poolstr=plan.name)) or ()
        nbytes = {pg["pgid"]: int(pg["stat_sum"]["num_bytes"]) // shares for pg in stats}
        return movement(before, after, nbytes, positional=frozenset(after) if plan.erasure else frozenset())

    def _adopt(self, change: PoolChange) -> None:
        plan = change.plan
        if plan.placement is not None:
            self._pools.places.ensure(self._pools.wishes([plan], where=f"pool {plan.name}"))
        for key, (now, then) in change.values.items():
            self._journal.note(_VALUE, f"{plan.name} {key}", now)
            self._set(plan.name, key, then)

    def _give_back(self, name: str) -> list[str]:
        done = []
        for entry in reversed(self._journal.entries(_VALUE)):
            pool, _, key = entry.place.rpartition(" ")
            if pool != name:
                continue
            if self._dumped(pool) is not None:
                # `unset` is Ceph's word for a pool without a value of its own (compression_*, csum_*).
                self._set(pool, key, "unset" if entry.was is None else str(entry.was))
                done.append(f"pool {pool} has {key} = {'nothing' if entry.was is None else entry.was} again")
            self._journal.forget(_VALUE, entry.place)
        return done

    def _set(self, pool: str, key: str, value: str) -> None:
        sure = {"yes_i_really_mean_it": True} if (key, value) == ("size", "1") else {}
        self._admin.command("osd pool set", pool=pool, var=key, val=value, **sure)

    def _value(self, pool: str, key: str) -> str | None:
        try:
            got = pool_value(self._admin, pool, key)
        except RefusedError as refused:
            if refused.code in (errno.EACCES, errno.EINVAL):  # a tier's value on a pool that is no tier yet
                return None
            raise
        return None if got is None else str(got)

    def _stored_nbytes(self, pool: str) -> int:
        """Bytes of clients. Not objects: a manager module keeps empty ones of its own in every pool of images."""
        stats = {p["name"]: p["stats"] for p in self._admin.command("df")["pools"]}.get(pool, {})
        return stored_nbytes(stats)

    def _dumped(self, name: str) -> dict[str, Any] | None:
        return next((p for p in self._admin.command("osd dump")["pools"] if p["pool_name"] == name), None)

    def _release(self) -> str:
        words = next(iter(self._admin.command("versions")["mon"]), "").split()
        return words[2] if len(words) > 2 else ""


def _wanted(plan: PoolPlan) -> dict[str, str]:
    return {**plan.values, **({"crush_rule": plan.rule} if plan.rule else {})}

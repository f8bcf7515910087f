"""Pools that cephfit creates, one for each distinct set of pool settings: created, read back and deleted.

Monitors permit the deletion of pools by an option. It is enabled only for the time of a deletion.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.crush.map_change import CrushChanges, FaultyMapError
from cephfit.ceph.crush.map_proposal import Wish
from cephfit.ceph.delivery.central_config import CONFIG
from cephfit.ceph.delivery.daemon_options import DaemonOptions
from cephfit.ceph.options.option import as_ceph_writes, same_value
from cephfit.ceph.pools.pool_keys import (
    PLACING_KEYS,
    VALUE_TYPES,
    add_tier,
    await_rest,
    ensure_profile,
    is_coded,
    remove_profile,
    take_apart,
    use_tier,
    why_no_tiers,
)
from cephfit.ceph.pools.pool_plan import (
    PoolPlan,
    Role,
    cache_pool_of,
    data_pool_of,
    plan_pools,
    pool_name,
    pool_settings,
)
from cephfit.ceph.pools.pool_readback import (
    UnplacedPoolError,
    await_counted,
    await_placed,
    dumped_pool,
    map_epoch,
    pool_value,
    read_back_pools,
)
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import CephfitError, ClusterError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.configuration import Configuration, Value

_SECTION, _OPTION = "mon", "mon_allow_pool_delete"
_EARLIER = "allow deletion"
"""Kind of the entry with the option's value that earlier versions wrote to the journal of declared pools."""


class PoolDeletion:
    """Permits the deletion of pools while it lasts.

    Args:
        options: of the cluster's daemons.
        journal: of these options. After a kill, ``cephfit restore`` restores them from it.
    """

    def __init__(self, options: DaemonOptions, journal: Journal) -> None:
        self._options = options
        self._journal = journal

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Permit deletion within the block; the option is restored after it in any case.

        Raises:
            CephfitError: the error that ended the block, or a failure to set or restore the option; both if both.
        """
        tried = ErrorCollector()
        try:
            with tried.trying():
                self._options.put(_SECTION, _OPTION, "true")
                yield
        finally:
            tried.make(self.take_back)
        tried.end()

    def take_back(self) -> None:
        """Restore what a process killed within the block left. Safe to call at any time."""
        self._options.take_back_one(_SECTION, _OPTION)

    def take_over(self, journal: Journal) -> None:
        """Restore what an earlier version left in the journal of declared pools, with the rest."""
        if (entry := journal.get(_EARLIER, _OPTION)) is not None:
            self._journal.note(CONFIG, f"{_SECTION} {_OPTION}", entry.was)
            journal.forget(_EARLIER, _OPTION)


_POOL = "pool"
_CEPHS_SIZE = 3
"""osd_pool_default_size of every release since Firefly."""


class Pools:
    """Creates pools; each is in the journal before it exists.

    Args:
        admin: of the cluster.
        journal: of created resources.
        defaults: pool settings of this target's default configuration, which apply to every configuration unless
            it sets them; they may differ only between clusters, since pool names do not include them.
        patience_seconds: how long the PGs of a pool may make no progress before they are active+clean.
    """

    def __init__(
        self,
        admin: CephAdmin,
        journal: Journal,
        defaults: Mapping[str, Value],
        *,
        patience_seconds: float = 600.0,
    ) -> None:
        self._admin = admin
        self._journal = journal
        self._patience_seconds = patience_seconds
        self._defaults = {key: as_ceph_writes(value) for key, value in defaults.items()}
        self.places = CrushChanges(admin, journal)

    def plans(self, configuration: Configuration) -> tuple[PoolPlan, ...]:
        """Return the pools of a configuration.

        Raises:
            InputError: its pool settings contradict each other.
        """
        given = {s.key: as_ceph_writes(s.value) for s in pool_settings(configuration)}
        where = f"configuration {configuration.name}"
        return plan_pools(pool_name(configuration), given, self._defaults, where=where)

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        """Return why this cluster cannot place a configuration's pools, tested offline; changes nothing."""
        try:
            plans = self.plans(configuration)
            if reasons := self._against_release(plans):
                return reasons
            wishes = self.wishes(plans, where=f"configuration {configuration.name}")
            return (
                self.places.propose(wishes).faults if wishes else ()
            )  # an existing rule may have too few OSDs for this size
        except CephfitError as error:
            return (f"{error.what}{f' ({error.remedy})' if error.remedy else ''}",)

    def _against_release(self, plans: Sequence[PoolPlan]) -> tuple[str, ...]:
        """Return the kinds of pools that this cluster's release or its OSDs do not support."""
        reasons: list[str] = []
        if any(plan.role is Role.CACHE for plan in plans):
            reasons += filter(None, [why_no_tiers(self._admin)])
        if any(plan.erasure for plan in plans):
            stores = {osd.get("osd_objectstore", "bluestore") for osd in self._admin.command("osd metadata")}
            if other := stores - {"bluestore"}:
                reasons.append(
                    f"images on an erasure code need BlueStore, but there are {', '.join(sorted(other))} OSDs"
                )
        return tuple(reasons)

    def ensure(self, configuration: Configuration) -> str:
        """Create and set the configuration's pools, and wait for their PGs; finishes incomplete ones.

        Returns:
            The pool for the images.

        Raises:
            RefusedError: the cluster refuses a setting.
            UnplacedPoolError: the PGs find no OSDs.
            ClusterError: a pool of this name exists that cephfit did not create.
        """
        self.make(self.plans(configuration), where=f"configuration {configuration.name}")
        return pool_name(configuration)

    def make(self, plans: Sequence[PoolPlan], *, where: str) -> None:
        """Create pools as planned; those of one call belong together. Raises as ``ensure``."""
        try:
            if wishes := self.wishes(plans, where=where):
                self.places.ensure(wishes)
        except FaultyMapError as faulty:
            raise UnplacedPoolError(faulty.what, where=faulty.where, remedy=faulty.remedy) from None
        if any(name.endswith(cache_pool_of("")) for name in self.created()):
            await_rest(self._admin)
        below = ""
        for plan in plans:
            self._ensure_one(plan, below)
            below = plan.name if plan.role is not Role.CACHE else below

    def wishes(self, plans: Sequence[PoolPlan], *, where: str) -> list[Wish]:
        """Return the CRUSH rules that plans need."""
        ids = {pool["poolname"]: pool["poolnum"] for pool in self._admin.command("osd lspools")}
        return [
            Wish(p.rule, p.placement, self._size(p), int(p.values.get("pg_num", 0)), ids.get(p.name), where)
            for p in plans
            if p.placement is not None
        ]

    def _size(self, plan: PoolPlan) -> int:
        return plan.size if plan.erasure or "size" in plan.values else self._default_size

    @cached_property
    def _default_size(self) -> int:
        """Return the monitors' default number of copies."""
        try:
            monitor = self._admin.command("mon dump")["mons"][0]["name"]
            shown = self._admin.command("config show", who=f"mon.{monitor}")
        except RefusedError:  # before Mimic
            return _CEPHS_SIZE
        return next((int(e["value"]) for e in shown if e["name"] == "osd_pool_default_size"), _CEPHS_SIZE)

    def _ensure_one(self, plan: PoolPlan, below: str) -> None:
        name = plan.name
        placed_at = map_epoch(self._admin) + 1
        is_new = name not in self.existing()
        if is_new:
            self._journal.note(_POOL, name, None)
            if plan.erasure:
                ensure_profile(self._admin, self._journal, name, plan.erasure, plan.placement)
            self._create(plan)
        elif self._journal.get(_POOL, name) is None:
            raise ClusterError(
                "a pool of this name exists but is not in the journal, so cephfit did not create it",
                where=f"pool {name}",
                remedy="rename or delete it",
            )
        values = dict(plan.values)
        if plan.rule:
            values["crush_rule"] = plan.rule
        if plan.erasure:
            values["allow_ec_overwrites"] = "true"  # RBD writes in place
        is_moved = False
        for key in PLACING_KEYS:
            epoch = map_epoch(self._admin)
            if key in values and self._set(name, key, values.pop(key)):
                is_moved, placed_at = True, epoch + 1
        if plan.role is Role.CACHE:
            add_tier(self._admin, base=below, cache=name)
        else:
            self._admin.command("osd pool application enable", pool=name, app="rbd")
        for key, value in values.items():
            self._set(name, key, value)
        if is_new or is_moved:
            await_placed(self._admin, name, placed_at, patience_seconds=self._patience_seconds)
        if plan.role is Role.CACHE:
            use_tier(self._admin, base=below, cache=name, mode=plan.mode)

    def existing(self) -> tuple[str, ...]:
        return tuple(p["poolname"] for p in self._admin.command("osd lspools"))

    def created(self) -> tuple[str, ...]:
        """Return the pools of the journal."""
        return tuple(e.place for e in self._journal.entries(_POOL))

    def read_back(self, configuration: Configuration) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Read pool values: setting (as text) to pool to value, and one sentence per mismatch."""
        plans = self.plans(configuration)
        wishes = self.wishes(plans, where=f"configuration {configuration.name}")
        allowed = {w.rule: self.places.osds_for(w) for w in wishes}
        return read_back_pools(self._admin, plans, pool_settings(configuration), allowed)

    def delete(self, name: str) -> None:
        """Delete a pool of the journal and those that belong to it.

        The monitors must permit it (``mon_allow_pool_delete``).
        """
        for one in (cache_pool_of(name), name, data_pool_of(name)):
            if self._journal.get(_POOL, one) is None:
                continue
            if one in self.existing():
                take_apart(self._admin, one)
                with self.places.keeping_rules() if is_coded(self._journal, one) else nullcontext():
                    self._admin.command("osd pool rm", pool=one, pool2=one, yes_i_really_really_mean_it=True)
            remove_profile(self._admin, self._journal, one)
            self._journal.forget(_POOL, one)

    def restore_places(self) -> None:
        """Restore the original CRUSH map, after the pools are deleted. Safe to call twice."""
        self.places.restore()

    def await_counted(self) -> None:
        """Wait until the manager's PG count matches the existing pools; it learns of deletions a little later."""
        await_counted(self._admin)

    def max_avail_nbytes(self, name: str) -> int | None:
        """Return Ceph's estimate of the bytes that clients can still write to a pool's images; None if unknown."""
        holding = self._holding(name)
        for pool in self._admin.command("df")["pools"]:
            if pool["name"] == holding:
                return int(pool["stats"]["max_avail"]) or None
        return None

    def copies(self, name: str) -> float:
        """Return the bytes on disks per byte of an image: copies, or (k + m) / k."""
        holding = self._holding(name)
        pool = dumped_pool(self._admin, holding)
        if not pool.get("erasure_code_profile"):
            return float(pool["size"])
        profile = self._admin.command("osd erasure-code-profile get", name=pool["erasure_code_profile"])
        return int(pool["size"]) / int(profile["k"])

    def _holding(self, name: str) -> str:
        """Return the pool that holds the data of a pool's images."""
        return data_pool_of(name) if data_pool_of(name) in self.existing() else name

    def _create(self, plan: PoolPlan) -> None:
        arguments: dict[str, Any] = {"pool": plan.name}
        required = plan.values
        if "pg_num" in required:
            arguments["pg_num"] = int(required["pg_num"])
        if "pgp_num" in required or "pg_num" in required:
            arguments["pgp_num"] = int(required.get("pgp_num", required.get("pg_num", "0")))
        arguments["pool_type"] = "erasure" if plan.erasure else "replicated"
        if plan.erasure:
            arguments["erasure_code_profile"] = plan.name
        if rule := plan.rule or required.get("crush_rule"):
            arguments["rule"] = rule
        # A PG count that the autoscaler changes during a sweep would invalidate every later sample.
        self._admin.command("osd pool create", **arguments, autoscale_mode="off")

    def _set(self, name: str, key: str, value: str) -> bool:
        """Set a value; return whether it had to be changed."""
        got = pool_value(self._admin, name, key)
        if got is not None and same_value(VALUE_TYPES.get(key, "str"), value, got):
            return False
        arguments: dict[str, Any] = {"pool": name, "var": key, "val": value}
        if key == "size" and value == "1":
            arguments["yes_i_really_mean_it"] = True
        self._admin.command("osd pool set", **arguments)
        return True

"""Pools of the tool's own: one for each distinct set of pool settings, made, read back and deleted."""

import errno
import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from cephfit.configuration import Configuration, Partition, Setting, Value
from cephfit.errors import ClusterError
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.journal import Journal
from cephfit.sweep.option_value import as_ceph_writes, same_value

_POOL = "pool"
POOL_PREFIX = "cephfit-"
_VALUE_TYPES = {
    "compression_max_blob_size": "size",
    "compression_min_blob_size": "size",
    "csum_min_block": "size",
    "csum_max_block": "size",
    "compression_required_ratio": "float",
    "read_ratio": "int",
    "write_fadvise_dontneed": "bool",
    "fast_read": "bool",
    "size": "int",
    "min_size": "int",
    "pg_num": "int",
    "pgp_num": "int",
}
_PLACING_KEYS = ("size", "pg_num", "pgp_num", "crush_rule")
"""Changing one of these puts PGs in other places."""
_WAIT_SECONDS = 30.0
"""PGs of an empty pool find their places within 2 s on a lab."""


class UnplacedPoolError(ClusterError):
    """A pool's PGs did not become active+clean, because its rule finds too few OSDs for its size, for example."""


def pool_settings(configuration: Configuration) -> tuple[Setting, ...]:
    """What a configuration says about its pool (not about its images)."""
    return tuple(s for s in configuration.within(Partition.POOL) if s.scope == "pool")


def pool_name(configuration: Configuration) -> str:
    """Configurations with the same pool settings share a pool; the default's is ``cephfit-default``."""
    settings = pool_settings(configuration)
    if not settings:
        return POOL_PREFIX + "default"
    text = "\n".join(f"{s.key}={as_ceph_writes(s.value)}" for s in sorted(settings))
    return POOL_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:10]


class Pools:
    """Makes pools; every one it makes is in the journal before it exists.

    Args:
        admin: of the cluster.
        journal: where what was made is written down.
        defaults: pool settings of the default configuration on this target, which every configuration has
            unless it says otherwise; may change only between clusters, since pools are named without them.
    """

    def __init__(self, admin: CephAdmin, journal: Journal, defaults: Mapping[str, Value]) -> None:
        self._admin = admin
        self._journal = journal
        self._defaults = {key: as_ceph_writes(value) for key, value in defaults.items()}

    def ensure(self, configuration: Configuration) -> str:
        """The configuration's pool, made and set, its PGs in their places; finishes a half-made one.

        Raises:
            RefusedError: the cluster refuses a setting.
        UnplacedPoolError: the PGs find no places.
        ClusterError: a pool of this name exists that is not ours.
        """
        name = pool_name(configuration)
        chosen = {s.key: as_ceph_writes(s.value) for s in pool_settings(configuration)}
        wanted = {**self._defaults, **chosen}
        is_new = name not in self.existing()
        if is_new:
            self._journal.note(_POOL, name, None)
            self._create(name, wanted)
        elif self._journal.get(_POOL, name) is None:
            raise ClusterError(
                "a pool of this name exists and is not in the journal, so it is not this tool's to use",
                where=f"pool {name}",
                remedy="rename or delete it",
            )
        self._admin.command("osd pool application enable", pool=name, app="rbd")
        changed = [key for key, value in wanted.items() if self._set(name, key, value)]
        if is_new or not {*_PLACING_KEYS}.isdisjoint(changed):
            self._await_placed(name, self._admin.command("osd dump")["epoch"])
        return name

    def existing(self) -> tuple[str, ...]:
        return tuple(p["poolname"] for p in self._admin.command("osd lspools"))

    def made(self) -> tuple[str, ...]:
        """The pools that the journal says are ours."""
        return tuple(e.place for e in self._journal.entries(_POOL))

    def read_back(self, configuration: Configuration) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Setting as text to pool to value, and one sentence per setting that did not take effect."""
        name = pool_name(configuration)
        values: dict[str, dict[str, Any]] = {}
        mismatches = []
        for setting in pool_settings(configuration):
            got = self._get(name, setting.key)
            values[str(setting)] = {name: got}
            if got is None or not same_value(_VALUE_TYPES.get(setting.key, "str"), setting.value, got):
                mismatches.append(f"pool {name} has {setting.key} = {got}, not {setting.value}")
        return values, mismatches

    def delete(self, name: str) -> None:
        """Delete a pool of the journal; the monitors must allow it (``mon_allow_pool_delete``)."""
        if name in self.existing():
            self._admin.command("osd pool rm", pool=name, pool2=name, yes_i_really_really_mean_it=True)
        self._journal.forget(_POOL, name)

    def await_counted(self) -> None:
        """Until the manager's PG count is that of the pools there are; it hears of deleted ones a little later."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            expected = sum(int(pool["pg_num"]) for pool in self._admin.command("osd dump")["pools"])
            if self._admin.command("status")["pgmap"]["num_pgs"] == expected:
                return
            time.sleep(0.1)

    def max_avail_nbytes(self, name: str) -> int | None:
        """Bytes that clients can still write into the pool, as Ceph reckons; None while it does not know."""
        for pool in self._admin.command("df")["pools"]:
            if pool["name"] == name:
                return int(pool["stats"]["max_avail"]) or None
        return None

    def copies(self, name: str) -> int:
        """How many copies of each object the pool keeps."""
        return int(self._admin.command("osd pool get", pool=name, var="size")["size"])

    def _create(self, name: str, wanted: Mapping[str, str]) -> None:
        arguments: dict[str, Any] = {"pool": name}
        if "pg_num" in wanted:
            arguments["pg_num"] = int(wanted["pg_num"])
        if "pgp_num" in wanted or "pg_num" in wanted:
            arguments["pgp_num"] = int(wanted.get("pgp_num", wanted.get("pg_num", "0")))
        arguments["pool_type"] = "replicated"
        if "crush_rule" in wanted:
            arguments["rule"] = wanted["crush_rule"]
        # A PG count that the autoscaler changes in the middle would make every sample after it invalid.
        self._admin.command("osd pool create", **arguments, autoscale_mode="off")

    def _set(self, name: str, key: str, value: str) -> bool:
        """Whether it had to be changed."""
        got = self._get(name, key)
        if got is not None and same_value(_VALUE_TYPES.get(key, "str"), value, got):
            return False
        arguments: dict[str, Any] = {"pool": name, "var": key, "val": value}
        if key == "size" and value == "1":
            arguments["yes_i_really_mean_it"] = True
        self._admin.command("osd pool set", **arguments)
        return True

    def _get(self, name: str, key: str) -> Any:
        try:
            said = self._admin.command("osd pool get", pool=name, var=key)
        except RefusedError as error:
            if error.code == errno.ENOENT:  # the answer for a value that was never set on an existing pool
                return None
            raise
        return said.get(key) if isinstance(said, dict) else None

    def _await_placed(self, name: str, epoch: int) -> None:
        """Until every PG has reported since ``epoch`` and is active+clean; older reports tell of older places."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while (why := self._unplaced(name, epoch)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if why:
            raise UnplacedPoolError(f"after {_WAIT_SECONDS:.0f} s {why}", where=f"pool {name}")

    def _unplaced(self, name: str, epoch: int) -> str:
        pool = next(p for p in self._admin.command("osd dump")["pools"] if p["pool_name"] == name)
        target = pool.get("pg_num_target", pool["pg_num"])
        try:
            pgs = self._admin.command("pg ls-by-pool", poolstr=name)["pg_stats"]
        except RefusedError as error:  # the manager has not heard of the pool yet
            return error.what
        if len(pgs) != target or pool["pg_placement_num"] != pool.get("pg_placement_num_target", target):
            return f"it has {len(pgs)} of {target} PGs"
        # A PG that changed its place reports from the new map at once; the epoch may be younger than that map.
        counts = Counter(pg["state"] for pg in pgs if pg["state"] != "active+clean")
        silent = sum(int(pg["reported_epoch"]) < min(epoch, int(pool["last_change"])) for pg in pgs)
        if silent:
            return f"{silent} PGs have not reported"
        return ", ".join(f"{count} PGs are {state}" for state, count in counts.items())

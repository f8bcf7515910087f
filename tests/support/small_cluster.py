"""A cluster of three OSDs that answers as Ceph does, without one: for what must not be tried on real OSDs."""

import copy
import errno
from collections.abc import Callable
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.core.errors import ClusterError

OPTIONS = {"osd_op_num_shards": False, "osd_max_backfills": True, "mon_allow_pool_delete": True}
"""Whether running daemons act on a change."""


class SmallCluster:
    """Implements ``CephAdmin``. Every PG of its pool ``vms`` has a copy on each OSD, and needs two of them.

    Attributes:
        changes: the commands that changed something, in order.
        store: the config store.
        refuses: commands that are refused, each with the words.
    """

    def __init__(self, n_osds: int = 3) -> None:
        self.osds: list[dict[str, Any]] = [
            {"osd": osd, "up": 1, "in": 1, "up_from": 5, "weight": 1.0, "state": ["exists", "up"]}
            for osd in range(n_osds)
        ]
        self.epoch = 10
        self.changes: list[str] = []
        self.store: dict[tuple[str, str], str] = {}
        self.refuses: dict[str, str] = {}

    def stop(self, osd: int) -> None:
        self.epoch += 1
        self._one(osd).update(up=0)

    def start(self, osd: int) -> None:
        self.epoch += 1
        self._one(osd).update(up=1, up_from=self.epoch)

    def purge(self, osd: int) -> None:
        self.epoch += 1
        self.osds = [one for one in self.osds if one["osd"] != osd]

    def flagged(self) -> list[int]:
        return [o["osd"] for o in self.osds if "noout" in o["state"]]

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        words = " ".join([prefix, *(str(v) for v in arguments.values())])
        if words in self.refuses:
            raise RefusedError(self.refuses[words], where="mon", code=errno.EINVAL)
        answer: Callable[..., Any] = getattr(self, "_" + prefix.replace(" ", "_").replace("-", "_"))
        return copy.deepcopy(answer(**arguments))

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        raise ClusterError("no daemon runs here", where=daemon)

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        raise ClusterError("nothing binary here")

    def close(self) -> None:
        pass

    def _one(self, osd: int) -> dict[str, Any]:
        """Raises:
        RefusedError: it was purged.
        """
        found = next((one for one in self.osds if one["osd"] == osd), None)
        if found is None:
            raise RefusedError(f"osd.{osd} does not exist", where="mon", code=errno.ENOENT)
        return found

    def _missing(self) -> bool:
        """Whether data lack a copy: an OSD that is out holds none."""
        return any(o["in"] and not o["up"] for o in self.osds)

    # What is asked.

    def _version(self) -> Any:
        return {"version": "ceph version 16.2.15 (1) pacific (stable)"}

    def _status(self) -> Any:
        n_up, n_in = sum(o["up"] for o in self.osds), sum(o["in"] for o in self.osds)
        checks = {"OSD_DOWN": {"summary": {"message": "1 osds down"}}} if self._missing() else {}
        return {
            "health": {"status": "HEALTH_WARN" if checks else "HEALTH_OK", "checks": checks},
            "quorum_names": ["a"],
            "osdmap": {"epoch": self.epoch, "num_osds": 3, "num_up_osds": n_up, "num_in_osds": n_in},
            "pgmap": {"pgs_by_state": [{"state_name": "active+clean", "count": 1}], "num_pgs": 1},
            "mgrmap": {"available": True},
        }

    def _osd_dump(self) -> Any:
        pools = [{"pool": 1, "pool_name": "vms", "min_size": 2, "pg_num": 1}]
        return {"epoch": self.epoch, "osds": self.osds, "pools": pools}

    def _osd_tree(self) -> Any:
        states = {1: "up", 0: "down"}
        nodes = [{"id": o["osd"], "type": "osd", "status": states[o["up"]]} for o in self.osds]
        return {"nodes": nodes}

    def _mgr_dump(self) -> Any:
        return {"active_name": "x"}

    def _pg_ls_by_osd(self, osd: int) -> Any:
        self._one(osd)
        up = [o["osd"] for o in self.osds if o["up"]]
        return {"pg_ready": True, "pg_stats": [{"pgid": "1.0", "acting": up, "reported_epoch": str(self.epoch)}]}

    def _osd_ok_to_stop(self, ids: list[str]) -> Any:
        self._one(int(ids[0]))
        if self._missing():
            raise RefusedError("1 PGs are already too degraded", where="mgr", code=errno.EBUSY)
        self.changes.append(f"may osd.{ids[0]} stop?")
        return {"ok_to_stop": True}

    def _config_help(self, key: str) -> Any:
        if key not in OPTIONS:
            raise RefusedError(f"Error: unknown option {key}", where="mon", code=errno.ENOENT)
        flags = ["runtime"] if OPTIONS[key] else ["startup"]
        return {
            "name": key, "type": "uint", "level": "advanced", "desc": key, "long_desc": "", "default": 8,
            "daemon_default": "", "tags": [], "services": ["osd"], "see_also": [], "enum_values": [], "min": "",
            "max": "", "can_update_at_runtime": OPTIONS[key], "flags": flags,
        }  # fmt: skip

    def _config_dump(self) -> Any:
        return [{"section": who, "name": name, "value": v, "mask": ""} for (who, name), v in self.store.items()]

    # What changes something.

    def _config_set(self, who: str, name: str, value: str, *, force: bool = False) -> None:
        if name not in OPTIONS and not force:
            raise RefusedError(f"unrecognized config option '{name}'", where="mon", code=errno.EINVAL)
        self.changes.append(f"{who} {name} = {value}")
        self.store[who, name] = value

    def _config_rm(self, who: str, name: str) -> None:
        self.changes.append(f"{who} {name} gone")
        del self.store[who, name]

    def _osd_add_noout(self, ids: list[str]) -> None:
        self._one(int(ids[0]))["state"].append("noout")

    def _osd_rm_noout(self, ids: list[str]) -> None:
        self._one(int(ids[0]))["state"].remove("noout")


class Daemons:
    """Implements ``OsdDaemons`` on a ``SmallCluster``.

    Args:
        cluster: whose.
        starts: whether an OSD comes up with what the store says now.
    """

    def __init__(self, cluster: SmallCluster, starts: Callable[[int], bool] = lambda osd: True) -> None:
        self._cluster = cluster
        self._starts = starts

    def why_not(self, osd: int) -> str:
        return ""

    def restart(self, osd: int) -> None:
        self._cluster.changes.append(f"restart osd.{osd}")
        self._cluster.stop(osd)
        if self._starts(osd):
            self._cluster.start(osd)

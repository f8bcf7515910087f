"""Declared pools compared with existing ones: differences are found, refused or corrected, and read back."""

import errno
from pathlib import Path
from typing import Any

import pytest

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.crush.map_proposal import Movement
from cephfit.ceph.delivery.daemon_options import DaemonOptions
from cephfit.ceph.delivery.option_delivery import OptionDelivery
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.pools.declared_pools import DeclaredPools, PoolChange, moved_by_undoing
from cephfit.ceph.pools.own_pools import PoolDeletion
from cephfit.ceph.pools.pool_plan import own_rule, plan_pools
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import NullProgress

CODED = {"crush_rule": "hdds", "metadata.crush_rule": "hdds", "metadata.size": "3", "pg_num": "8"}
"""An erasure-coded pool on rules that are there, so that the CRUSH map stays out of it."""


class Killed(BaseException):
    """Ends a process at once."""


class Monitors:
    """A cluster's monitors and manager, as far as pools and erasure code profiles go."""

    def __init__(self) -> None:
        self.pools: dict[str, dict[str, Any]] = {}
        self.profiles: dict[str, dict[str, str]] = {"default": {"k": "2", "m": "2"}}
        self.commands: list[str] = []
        self.changed: list[str] = []
        """Keys and values of ``osd pool set``."""
        self.dies_at: str = ""
        """Such a key and value, before which the process is killed."""
        self.deaf_to: str = ""
        """A pool's value that is accepted and has no effect."""

    def command(self, prefix: str, /, **said: Any) -> Any:
        self.commands.append(prefix)
        return getattr(self, "_" + prefix.replace(" ", "_").replace("-", "_"))(**said)

    def tell(self, daemon: str, prefix: str, /, **_: Any) -> Any:
        raise AssertionError("no daemon is asked")

    def exchange(self, prefix: str, payload: bytes = b"", /, **_: Any) -> bytes:
        raise AssertionError("the CRUSH map stays as it is")

    def close(self) -> None:
        pass

    def _osd_dump(self) -> Any:
        return {"epoch": 5, "pool_max": len(self.pools), "osds": [], "pools": list(self.pools.values())}

    def _osd_tree(self) -> Any:
        root = {"id": -1, "name": "default", "type": "root", "type_id": 11, "children": list(range(10))}
        osds = [{"id": n, "name": f"osd.{n}", "type": "osd", "type_id": 0, "status": "up"} for n in range(10)]
        return {"nodes": [root, *osds]}

    def _status(self) -> Any:
        return {"quorum_names": ["a"]}

    def _mgr_dump(self) -> Any:
        return {}

    def _config_show(self, who: str) -> Any:
        assert who == "mon.a"
        return [{"name": "osd_pool_default_pg_num", "value": "16"}]

    def _osd_crush_rule_dump(self) -> Any:
        return [
            {"rule_id": n, "rule_name": name, "type": 1, "steps": [{"op": "take", "item_name": "default"}]}
            for n, name in enumerate(("hdds", "ssds"))
        ]

    def _osd_lspools(self) -> Any:
        return [{"poolname": name, "poolnum": pool["pool"]} for name, pool in self.pools.items()]

    def _osd_pool_create(self, pool: str, pool_type: str, autoscale_mode: str, **said: Any) -> None:
        n_pgs = int(said.get("pg_num", 32))
        profile = said.get("erasure_code_profile", "")
        code = self.profiles.get(profile, {})
        values = {"crush_rule": said.get("rule", "replicated_rule"), "pg_num": n_pgs, "pgp_num": n_pgs}
        values["size"] = int(code["k"]) + int(code["m"]) if code else 3
        values["min_size"] = values["size"] - values["size"] // 2
        self.pools[pool] = {
            "pool": len(self.pools) + 1, "pool_name": pool, "crush_rule": 0, "tier_of": -1, "size": values["size"],
            "pg_num": n_pgs, "pg_placement_num": n_pgs, "erasure_code_profile": profile, "values": values,
            "flags_names": "hashpspool",
        }  # fmt: skip

    def _osd_pool_get(self, pool: str, var: str) -> Any:
        values = self.pools[pool]["values"]
        if var not in values:
            raise RefusedError(f"option '{var}' is not set on pool '{pool}'", code=errno.ENOENT)
        return {var: values[var]}

    def _osd_pool_set(self, pool: str, var: str, val: str) -> None:
        self.changed.append(f"{var} {val}")
        if self.dies_at == f"{var} {val}":
            raise Killed
        values = self.pools[pool]["values"]
        if var == "min_size" and int(val) > int(values["size"]):
            raise RefusedError("pool min_size must be between 1 and size", code=errno.EINVAL)
        if var.startswith(("compression_", "csum_")):
            is_word = var in ("compression_mode", "compression_algorithm", "csum_type")
            if val == "unset" and not is_word:
                raise RefusedError(f"error parsing value '{val}'", code=errno.EINVAL)
            if val == ("unset" if is_word else "0"):
                values.pop(var, None)
                return
        if var != self.deaf_to:
            values[var] = val
        if var == "size":  # OSDMonitor::prepare_command_pool_set
            values["min_size"] = str(int(val) - int(val) // 2)
        if var == "allow_ec_overwrites":
            self.pools[pool]["flags_names"] = "hashpspool,ec_overwrites"

    def _osd_pool_application_enable(self, pool: str, app: str) -> None:
        assert pool in self.pools

    def _pg_ls_by_pool(self, poolstr: str) -> Any:
        n = self.pools[poolstr]["pg_num"]
        return {"pg_stats": [{"pgid": f"1.{x:x}", "state": "active+clean", "reported_epoch": 9} for x in range(n)]}

    def _osd_erasure_code_profile_ls(self) -> Any:
        return list(self.profiles)

    def _osd_erasure_code_profile_get(self, name: str) -> Any:
        if name not in self.profiles:
            raise RefusedError(f"unknown erasure code profile '{name}'", code=errno.ENOENT)
        return self.profiles[name]

    def _osd_erasure_code_profile_set(self, name: str, profile: list[str]) -> None:
        assert name not in self.profiles, "Ceph asks for --force"
        self.profiles[name] = dict(word.split("=") for word in profile) | {"plugin": "jerasure"}

    def _osd_erasure_code_profile_rm(self, name: str) -> None:
        self.profiles.pop(name, None)


@pytest.fixture
def monitors() -> Monitors:
    return Monitors()


def declared_pools(monitors: Monitors, folder: Path, journal: Journal) -> DeclaredPools:
    """Build the declared pools of a cluster, with the journal of its target in the folder."""
    kept = Journal(folder / "journal.jsonl")
    options = DaemonOptions(
        monitors, Catalogue(monitors), kept, hosts=Hosts(), delivery=OptionDelivery(), progress=NullProgress()
    )
    return DeclaredPools(monitors, journal, PoolDeletion(options, kept))


@pytest.fixture
def pools(monitors: Monitors, tmp_path: Path) -> DeclaredPools:
    return declared_pools(monitors, tmp_path, Journal(tmp_path / "pools.jsonl"))


def coded(k: int, m: int) -> dict[str, dict[str, str]]:
    return {"archive": {**CODED, "erasure.k": str(k), "erasure.m": str(m)}}


def test_created_pools_match_their_declaration(monitors: Monitors, pools: DeclaredPools) -> None:
    pools.apply(coded(4, 2))
    assert monitors.pools["archive-data"]["size"] == 6
    again = pools.plan(coded(4, 2))
    assert not again.faults
    assert [(c.state, dict(c.values)) for c in again.changes] == [("ours", {}), ("ours", {})]


def test_another_code_for_a_pool_that_is_there_is_a_difference_that_no_command_mends(
    monitors: Monitors, pools: DeclaredPools
) -> None:
    pools.apply(coded(4, 2))
    plan = pools.plan(coded(8, 3))
    assert dict(plan.changes[1].values) == {"erasure.k": ("4", "8"), "erasure.m": ("2", "3")}
    assert plan.faults[0].startswith("the erasure code of pool archive-data has k = 4, m = 2, not k = 8, m = 3")
    with pytest.raises(ClusterError, match=r"nothing was changed: .*k = 4, m = 2, not k = 8, m = 3"):
        pools.apply(coded(8, 3))


def test_an_existing_profile_is_not_used(monitors: Monitors, pools: DeclaredPools) -> None:
    monitors.profiles["archive-data"] = {"k": "2", "m": "1"}
    with pytest.raises(ClusterError, match="not in the journal, so cephfit did not create it"):
        pools.apply(coded(8, 3))
    assert "archive-data" not in monitors.pools
    assert monitors.profiles["archive-data"] == {"k": "2", "m": "1"}


def test_a_profile_that_was_begun_for_another_code_is_created_again(monitors: Monitors, tmp_path: Path) -> None:
    monitors.profiles["archive-data"] = {"k": "4", "m": "2"}
    journal = Journal(tmp_path / "pools.jsonl")
    journal.note("erasure profile", "archive-data", None)
    declared_pools(monitors, tmp_path, journal).apply(coded(8, 3))
    assert monitors.profiles["archive-data"]["k"] == "8"


def test_a_value_without_effect_is_an_error(monitors: Monitors, pools: DeclaredPools) -> None:
    monitors.deaf_to = "compression_mode"
    declared = {"squeezed": {"crush_rule": "hdds", "compression_mode": "aggressive"}}
    with pytest.raises(ClusterError, match="has compression_mode = None, not aggressive"):
        pools.apply(declared)


def test_an_equal_existing_pool_is_not_changed(monitors: Monitors, pools: DeclaredPools) -> None:
    monitors.command("osd pool create", pool="gold", pool_type="replicated", autoscale_mode="on", rule="ssds")
    (change,) = pools.apply({"gold": {"size": "3", "crush_rule": "ssds"}}).changes
    assert (change.state, dict(change.values)) == ("theirs", {})
    assert "osd pool set" not in monitors.commands


@pytest.mark.parametrize("adopt", [frozenset(), frozenset({"archive"})])
def test_an_existing_pool_does_not_become_the_metadata_of_an_erasure_code(
    monitors: Monitors, pools: DeclaredPools, adopt: frozenset[str]
) -> None:
    monitors.command("osd pool create", pool="archive", pool_type="replicated", autoscale_mode="on", rule="hdds")
    with pytest.raises(ClusterError, match="cannot get a code or a tier"):
        pools.apply(coded(4, 2), adopt=adopt)
    assert "archive-data" not in monitors.pools


def test_pgs_that_are_still_being_split_count_as_what_they_are_split_to(
    monitors: Monitors, pools: DeclaredPools
) -> None:
    monitors.command("osd pool create", pool="gold", pool_type="replicated", autoscale_mode="on", pg_num=32)
    monitors.pools["gold"] |= {"pg_num_target": 64, "pg_placement_num_target": 64}
    (change,) = pools.plan({"gold": {"pg_num": "64"}}, adopt=frozenset({"gold"})).changes
    assert dict(change.values) == {}


def test_a_pool_with_few_pgs_is_reported_before_its_creation(monitors: Monitors, pools: DeclaredPools) -> None:
    declared = {"gold": {"crush_rule": "ssds", "size": "3"}, "large": {"crush_rule": "hdds", "pg_num": "128"}}
    (said,) = pools.plan(declared).warnings
    assert said.startswith("pool gold has 16 PGs, 4.8 on each OSD in all copies")
    assert "`pg_num: 128` is enough" in said
    pools.apply(declared)
    assert pools.plan(declared).warnings == ()


@pytest.fixture
def vms(monitors: Monitors, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the values of an existing pool; without a map, nothing moves."""
    monkeypatch.setattr(DeclaredPools, "_moved", lambda *_: Movement(0, 0, 0))
    monitors.command("osd pool create", pool="vms", pool_type="replicated", autoscale_mode="on", rule="ssds")
    values: dict[str, Any] = monitors.pools["vms"]["values"]
    return values


def copies(values: dict[str, Any]) -> tuple[str, str]:
    return str(values["size"]), str(values["min_size"])


@pytest.mark.parametrize(
    ("before", "declared", "after"),
    [
        (("2", "2"), {"size": "3"}, ("3", "2")),
        (("3", "3"), {"min_size": "1", "size": "2"}, ("2", "1")),
        (("3", "2"), {"size": "2", "min_size": "2"}, ("2", "2")),
        (("3", "1"), {"min_size": "2"}, ("3", "2")),
    ],
)
def test_a_change_of_size_includes_min_size_which_ceph_resets(
    monitors: Monitors,
    pools: DeclaredPools,
    vms: dict[str, Any],
    before: tuple[str, str],
    declared: dict[str, str],
    after: tuple[str, str],
) -> None:
    vms["size"], vms["min_size"] = before
    (change,) = pools.apply({"vms": declared}, adopt=frozenset({"vms"})).changes
    if "size" in declared:
        assert list(change.values) == ["size", "min_size"]
    assert change.values["min_size"] == (before[1], after[1])
    assert copies(vms) == after
    pools.give_back()
    assert copies(vms) == before


@pytest.mark.parametrize("dies_at", ["size 3", "min_size 2"])
def test_a_change_of_size_that_was_killed_is_undone(
    monitors: Monitors, tmp_path: Path, vms: dict[str, Any], dies_at: str
) -> None:
    vms["size"], vms["min_size"] = "2", "2"
    monitors.dies_at = dies_at
    with pytest.raises(Killed):
        declared_pools(monitors, tmp_path, Journal(tmp_path / "p")).apply(
            {"vms": {"size": "3"}}, adopt=frozenset({"vms"})
        )
    monitors.dies_at = ""
    declared_pools(monitors, tmp_path, Journal(tmp_path / "p")).give_back()
    assert copies(vms) == ("2", "2")


def test_the_original_min_size_outlives_another_change_of_size(
    monitors: Monitors, pools: DeclaredPools, vms: dict[str, Any]
) -> None:
    vms["size"], vms["min_size"] = "3", "3"
    adopt = frozenset({"vms"})
    pools.apply({"vms": {"size": "2", "min_size": "2"}}, adopt=adopt)
    pools.give_back(but={"vms": ("size",)})
    pools.apply({"vms": {"size": "2"}}, adopt=adopt)
    assert copies(vms) == ("2", "1")
    pools.give_back()
    assert copies(vms) == ("3", "3")


def test_values_that_a_pool_did_not_have_are_removed_again(pools: DeclaredPools, vms: dict[str, Any]) -> None:
    """Ceph refuses `unset` for numbers: 0 removes them."""
    before = dict(vms)
    declared = {
        "compression_mode": "force",
        "compression_required_ratio": "0.7",
        "compression_max_blob_size": "65536",
        "csum_type": "crc32c",
    }
    pools.apply({"vms": declared}, adopt=frozenset({"vms"}))
    assert vms == before | declared
    pools.give_back()
    assert vms == before


@pytest.mark.parametrize(
    ("declared", "moved"),
    [
        ({"compression_mode": "force"}, ("crush_rule of pool vms",)),
        ({"crush_rule": "ssds"}, ()),
        ({"devices.class": "ssd"}, ()),
    ],
)
def test_a_rule_that_is_not_declared_again_is_undone_and_moves_data(
    declared: dict[str, str], moved: tuple[str, ...]
) -> None:
    entries = [Entry("pool value", "vms crush_rule", "hdds"), Entry("pool value", "vms csum_type", None)]
    (plan,) = plan_pools("vms", declared, {}, rule_of=own_rule)
    change = PoolChange(plan, "adopted", {}, Movement(0, 0, 0))
    assert moved_by_undoing(entries, change) == moved
    assert moved_by_undoing(entries, None) == ("crush_rule of pool vms",)

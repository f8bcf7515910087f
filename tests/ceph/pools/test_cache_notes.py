"""What the preview and the run say of OSDs' caches and of a pool's PGs, before anything is measured."""

from collections.abc import Mapping
from typing import Any

import pytest

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.pools.osd_capacity import (
    OsdCapacity,
    PoolDefaults,
    drops_note,
    few_pgs_note,
    few_pgs_of,
    fits_note,
    memory_targets,
)
from cephfit.ceph.pools.pool_plan import plan_pools
from cephfit.core.protocols import NullProgress
from cephfit.core.units import GIB
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import bundled_sweep, parse_sweep, read_sweep
from cephfit.sweep.execution.preflight import begun
from cephfit.sweep.sweep_plan import Sweep
from cephfit.targets.ceph.cluster_preview import planned_pools
from cephfit.targets.simulated import simulated_target


class Cluster:
    """Four hosts in two racks, an hdd and an ssd OSD in each; the manager knows what runs."""

    def __init__(self, shown: Mapping[int, list[dict[str, str]]] | None = None) -> None:
        self._shown = shown or {}

    def command(self, prefix: str, /, **said: Any) -> Any:
        if prefix == "config show":
            if said["who"] == "mon.a":
                return [{"name": "osd_pool_default_size", "value": "3"}]
            number = int(said["who"].removeprefix("osd."))
            if number not in self._shown:
                raise RefusedError("no such daemon")
            return self._shown[number]
        nodes: list[dict[str, Any]] = [
            {"id": -1, "name": "default", "type": "root", "type_id": 11, "children": [-11, -12]},
            {"id": -11, "name": "r1", "type": "rack", "type_id": 3, "children": [-2, -3]},
            {"id": -12, "name": "r2", "type": "rack", "type_id": 3, "children": [-4, -5]},
            {"id": -99, "name": "few", "type": "root", "type_id": 11, "children": [1, 0]},
        ]
        for n in range(4):
            osds = [2 * n, 2 * n + 1]
            nodes.append({"id": -2 - n, "name": f"h{n}", "type": "host", "type_id": 1, "children": osds})
            for osd, of_class in zip(osds, ("hdd", "ssd"), strict=True):
                about = {"type": "osd", "type_id": 0, "status": "up", "device_class": of_class}
                nodes.append({"id": osd, "name": f"osd.{osd}", **about})
        rules = [
            ("replicated_rule", "default", 1),
            ("fast", "default~ssd", 1),
            ("coded", "r1", 3),
            ("few", "few", 1),
        ]
        return {
            "osd tree": {"nodes": nodes},
            "status": {"quorum_names": ["a"]},
            "mgr dump": {},
            "osd crush rule dump": [
                {"rule_id": n, "rule_name": name, "type": kind, "steps": [{"op": "take", "item_name": taken}]}
                for n, (name, taken, kind) in enumerate(rules)
            ],
        }[prefix]

    def tell(self, daemon: str, prefix: str, /, **_: Any) -> Any:
        raise AssertionError("no daemon is asked")

    def exchange(self, prefix: str, payload: bytes = b"", /, **_: Any) -> bytes:
        raise AssertionError("nothing but JSON is asked")

    def close(self) -> None:
        pass


SSDS, ALL = frozenset({1, 3, 5, 7}), frozenset(range(8))


@pytest.fixture
def osd_capacity() -> OsdCapacity:
    return OsdCapacity(Cluster())


def test_a_rule_determines_the_osds_of_a_pool(osd_capacity: OsdCapacity) -> None:
    assert osd_capacity.rule("fast") == osd_capacity.rule(1) == SSDS
    assert osd_capacity.rule(None) == osd_capacity.rule(0) == ALL
    assert osd_capacity.rule("coded") == {0, 1, 2, 3}
    assert osd_capacity.rule("few") == {0, 1}, "they hang in two trees"
    assert osd_capacity.rule("gone") == frozenset()


@pytest.mark.parametrize(
    ("settings", "osds"),
    [
        ({}, ALL),
        ({"crush_rule": "fast"}, SSDS),
        ({"devices.class": "ssd"}, SSDS),
        ({"devices.class": "hdd", "devices.hosts": "h0,h3"}, {0, 6}),
        ({"devices.osds": "2,3"}, {2, 3}),
        ({"devices.root": "r2", "devices.class": "ssd"}, {5, 7}),
        ({"primary.class": "ssd", "primary.hosts": "h0", "devices.class": "hdd", "devices.hosts": "h1"}, {1, 2}),
    ],
)
def test_a_planned_placement_determines_the_osds(
    osd_capacity: OsdCapacity, settings: Mapping[str, str], osds: frozenset[int]
) -> None:
    (plan,) = plan_pools("p", settings, {})
    assert osd_capacity.plan(plan) == osds


def warm(volume_size: str, cache: str = "warm") -> Sweep:
    measurement = f"measurement: {{sizes: [4K], patterns: [read], clients: 2, volume_size: {volume_size}, "
    measurement += f"repeats: 1, run_seconds: 1, seed: 1, cache: {cache}}}"
    return parse_sweep(f"schema_version: 1\nname: s\nconfigurations: {{A: {{}}}}\n{measurement}\n", file="s.yaml")


def test_volumes_that_fit_into_warm_caches_are_reported() -> None:
    targets = [4 * GIB] * 3
    said = fits_note(warm("1G").measurement, targets, pool="bench")
    assert "the volumes (2 GiB) fit into those of the 3 OSDs of pool bench (12 GiB" in said
    assert fits_note(warm("8G").measurement, targets) == ""
    assert fits_note(warm("1G", "cold").measurement, targets) == ""
    assert fits_note(warm("1G").measurement, []) == "", "the amount is unknown"


def test_the_memory_of_osds_is_what_they_run_with_or_cephs_default() -> None:
    shown = {0: [{"name": "osd_memory_target", "value": "2147483648"}], 1: [{"name": "other", "value": "1"}]}
    assert memory_targets(Cluster(shown), [0, 1, 2]) == {0: 2 * GIB, 1: 4 * GIB}


def test_how_often_all_caches_are_dropped() -> None:
    assert "the caches of all 8 OSDs are dropped 80 times" in drops_note(80, 8)
    assert drops_note(0, 8) == ""


def test_a_pools_pgs_per_osd_are_reported_and_warned_of_if_few(osd_capacity: OsdCapacity) -> None:
    settings = {
        "default": {},
        "fast": {"devices.class": "ssd", "pg_num": "128"},
        "coded": {"devices.class": "hdd", "failure_domain": "osd", "erasure.k": "2", "erasure.m": "1"},
    }
    plans = {name: plan_pools(f"p-{name}", said, {}) for name, said in settings.items()}
    made = {p.name: p for p in planned_pools(plans, warm("1G"), (), PoolDefaults(3, 32), osd_capacity)}
    assert (made["p-default"].n_pgs, made["p-default"].pgs_per_osd) == (32, 12.0)
    assert (made["p-fast"].n_pgs, made["p-fast"].pgs_per_osd) == (128, 96.0)
    assert made["p-coded-data"].pgs_per_osd == 24.0
    assert made["p-coded"].pgs_per_osd == 0.0, "it holds metadata only"
    notes = [few_pgs_note(p.name, p.n_pgs, p.pgs_per_osd) for p in made.values()]
    default, coded = filter(None, notes)
    assert few_pgs_of(Cluster(), plans.values()) == [default, coded], "pools of `cephfit pools` get the same notes"
    assert "pool p-default has 32 PGs, 12 on each OSD in all copies" in default
    assert "`pg_num: 128` is enough" in default
    assert "`pg_num: 64` is enough" in coded


@pytest.mark.parametrize(("volume_size", "kept"), [("1G", True), ("100G", False)])
def test_a_run_keeps_it_as_a_caveat(store: Store, volume_size: str, kept: bool) -> None:
    facts = {"osds": [{"id": n, "osd_memory_target": 4 * GIB} for n in range(3)]}
    run = begun(warm(volume_size), simulated_target("sim"), store, NullProgress(), facts, resume=None)
    assert ("in_memory" in store.run(run.run_id).facts) is kept


def test_the_sweep_of_one_pool_is_such_a_one_on_a_small_cluster() -> None:
    assert fits_note(read_sweep(bundled_sweep("one-pool")).measurement, [4 * GIB])

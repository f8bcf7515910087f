"""Declared pools in sweep files: what they come to, and mistakes named with their line."""

from pathlib import Path

import pytest

from cephfit.ceph.crush.data_placement import Devices, Placement
from cephfit.ceph.pools.pool_plan import Role, cost_of, data_pool_name, plan_pools, pool_name, same_pool, space_of
from cephfit.core.errors import InputError
from cephfit.core.units import GIB
from cephfit.sweep.declaration.file_settings import read_pool_file
from cephfit.sweep.declaration.sweep_file import bundled_sweep, parse_sweep, read_sweep

MEASUREMENT = (
    "measurement: {sizes: [4K], patterns: [read], clients: 1, volume_size: 64M, repeats: 1, run_seconds: 1, "
)
MEASUREMENT += "seed: 1}"


def sweep(pools: str, configurations: str, *, accept: str = "[size, erasure.m]") -> str:
    return (
        f"schema_version: 1\nname: s\naccept_risk: {accept}\npools:\n{pools}\nconfigurations:\n{configurations}\n"
        + MEASUREMENT
    )


def test_use_includes_the_whole_declaration_and_other_keys_override_it() -> None:
    text = sweep("  fast: {devices: {class: ssd}, size: 2, pg_num: 32}", "  B: {pool: {use: fast, pg_num: 64}}")
    (_, b) = parse_sweep(text, file="s.yaml").configurations
    assert {s.key: s.value for s in b.settings} == {"devices.class": "ssd", "size": 2, "pg_num": 64}


def test_a_sweep_means_the_same_whether_a_pool_is_used_by_name_or_written_out() -> None:
    by_name = sweep("  fast: {devices: {class: ssd}, size: 2}", "  B: {pool: {use: fast}}")
    nested = sweep("  other: {size: 3}", "  B: {pool: {devices: {class: ssd}, size: 2}}")
    dotted = sweep("  other: {size: 3}", '  B: {pool: {"devices.class": ssd, size: 2}}')
    assert len({parse_sweep(text, file="s.yaml").digest for text in (by_name, nested, dotted)}) == 1


def test_lists_of_hosts_and_osds() -> None:
    pools = "  a: {devices: {hosts: [x, y], class: hdd}}\n  b: {devices: {osds: [osd.7, 3]}}"
    swept = parse_sweep(sweep(pools, "  A1: {pool: {use: a}}\n  B1: {pool: {use: b}}"), file="s.yaml")
    placed = {c.name: plan_pools("p", {s.key: str(s.value) for s in c.settings}, {}) for c in swept.configurations}
    assert placed["A1"][0].placement == Placement(Devices(hosts=("x", "y"), device_class="hdd"))
    assert placed["B1"][0].placement == Placement(Devices(osds=(3, 7)))


@pytest.mark.parametrize(
    ("pools", "line", "words"),
    [
        ("  fast: {devices: {clas: ssd}}", 5, "did you mean 'devices.class'?"),
        ("  ok: {size: 3}\n  tier: {cache: {devices: {class: ssd}}}", 6, "target_max_bytes"),
        ("  tier: {cache: {target_max_bytes: 1G}}", 5, "has no placement"),
        ("  t: {cache: {mode: writebak, devices: {class: ssd}, target_max_bytes: 1G}}", 5, "'writeback'"),
        ("  ec: {erasure: {k: 2}}", 5, "erasure.m must be a whole number"),
        ("  ec: {erasure: {k: 2, m: 2}, size: 3}", 5, "remove `size`"),
        ("  both: {crush_rule: hdd, devices: {class: ssd}}", 5, "remove one of them"),
        ("  m: {metadata: {size: 3}}", 5, "erasure"),
        ("  o: {devices: {osds: [a]}}", 5, "'a' is not an OSD"),
    ],
)
def test_mistakes_are_named_with_their_line(pools: str, line: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_sweep(sweep(pools, "  B: {}"), file="s.yaml")
    assert caught.value.where == f"s.yaml:{line}"
    assert words in str(caught.value)


def test_a_pool_that_is_used_and_not_declared() -> None:
    with pytest.raises(InputError, match="did you mean 'fast'"):
        parse_sweep(sweep("  fast: {size: 3}", "  B: {pool: {use: fats}}"), file="s.yaml")


@pytest.mark.parametrize(
    ("pools", "key"),
    [
        ("  a: {size: 2}", "size"),
        ("  a: {cache: {devices: {class: ssd}, size: 2, target_max_bytes: 1G}}", "cache.size"),
        ("  a: {erasure: {k: 2, m: 1}}", "erasure.m"),
        ("  a: {cache: {devices: {class: ssd}, mode: readonly, target_max_bytes: 1G}}", "cache.mode"),
    ],
)
def test_what_risks_data_must_be_named(pools: str, key: str) -> None:
    with pytest.raises(InputError, match="risks data"):
        parse_sweep(sweep(pools, "  B: {}", accept="[]"), file="s.yaml")
    parse_sweep(sweep(pools, "  B: {}", accept=f"[{key}]"), file="s.yaml")


def test_an_erasure_code_results_in_a_data_pool_and_replicated_metadata() -> None:
    settings = {"devices.class": "hdd", "erasure.k": "4", "erasure.m": "2", "pg_num": "64"}
    base, data = plan_pools("p", settings, {"crush_rule": "hdd", "pg_num": "32"})
    assert (base.name, base.role, base.size, base.values["pg_num"]) == ("p", Role.BASE, 3, "32")
    assert (data.name, data.role, data.size, data.values["pg_num"]) == ("p-data", Role.DATA, 6, "64")
    assert "crush_rule" not in base.values
    assert base.placement is not None
    assert base.placement.devices == Devices(device_class="hdd")
    assert data.placement is not None
    assert data.placement.erasure


def test_pools_that_lie_alike_share_a_rule_and_others_do_not() -> None:
    one, two = (plan_pools("p", {"devices.class": "ssd", "size": n}, {})[0] for n in "23")
    (other,) = plan_pools("p", {"devices.class": "ssd", "failure_domain": "rack"}, {})
    assert one.rule == two.rule != other.rule


def test_what_pools_take_of_each_class() -> None:
    swept = {c.name: c for c in read_sweep(bundled_sweep("heterogeneous")).configurations}
    assert space_of(swept["ssd"], GIB) == {"ssd": 2.0}
    assert space_of(swept["mixed"], GIB) == {"ssd": 1.0, "hdd": 1.0}
    assert space_of(swept["coded"], GIB) == {"hdd": 1.5}
    assert space_of(swept["A"], GIB) is None, "the cluster's default says it, not the file"
    # A tier that held all that was measured promises its speed only to data that it holds all of.
    assert space_of(swept["tiered"], GIB // 2) == {"hdd": 2.0, "ssd": 2.0}
    assert space_of(swept["tiered-small"], GIB // 2) == {"hdd": 2.0, "ssd": 0.5}
    assert cost_of({"hdd": 2.0, "ssd": 0.5}, {"hdd": 1.0, "ssd": 4.0}) == 4.0
    assert cost_of({"hdd": 2.0}, {"ssd": 4.0}) is None
    assert same_pool(list(swept.values()))["A-again"] == "A"


def test_names_of_pools_follow_what_they_are() -> None:
    swept = {c.name: c for c in read_sweep(bundled_sweep("heterogeneous")).configurations}
    assert pool_name(swept["A"]) == pool_name(swept["A-again"]) == "cephfit-default"
    assert data_pool_name(swept["coded"]) == f"{pool_name(swept['coded'])}-data"
    assert data_pool_name(swept["tiered"]) is None


def test_the_example_of_a_pool_file_can_be_read(tmp_path: Path) -> None:
    from cephfit import templates

    (folder,) = templates.__path__
    pools = read_pool_file(Path(folder) / "pools.example.yaml").pools
    assert set(pools) == {"volumes-ssd", "volumes-mixed", "volumes-coded", "volumes-tiered"}
    empty = tmp_path / "empty.yaml"
    empty.write_text("schema_version: 1\npools: {}\n")
    with pytest.raises(InputError, match="declares no pool"):
        read_pool_file(empty)


def test_a_pool_that_stays_is_not_called_like_those_of_sweeps(tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text("schema_version: 1\npools:\n  gold: {size: 3}\n  cephfit-gold: {size: 3}\n")
    with pytest.raises(InputError, match="'cephfit-gold' cannot be the name of a permanent pool") as caught:
        read_pool_file(file)
    assert caught.value.where.endswith(":4")

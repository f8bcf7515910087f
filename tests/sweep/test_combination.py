"""Combining configurations: conflicts have names, and the written file means what it should."""

from dataclasses import replace

import pytest

from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.sweep.combination import conflict_of, merged, possible_combinations, sweep_of
from cephfit.sweep.declaration.sweep_file import bundled_sweep, bundled_sweeps, parse_sweep, read_sweep

SWEEP = """\
schema_version: 1
name: s
accept_risk: [size, m]
pools:
  fast: {{devices: {{class: ssd}}, size: 2}}
configurations:
{configurations}
measurement: {{clients: 1, volume_size: 32M, repeats: 2, run_seconds: 1, seed: 1}}
"""


def of(**bodies: str) -> list[Configuration]:
    lines = "\n".join(f"  {name.replace('_', '-')}: {body}" for name, body in bodies.items())
    return list(parse_sweep(SWEEP.format(configurations=lines), file="s.yaml").configurations[1:])


BLOB = "{ceph: {osd: {bluestore_max_blob_size: 512K}}}"


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        (BLOB, "{ceph: {osd: {bluestore_max_blob_size: 256K}}}", "bluestore_max_blob_size = 512K and 256K"),
        (BLOB, "{ceph: {global: {bluestore_max_blob_size: 256K}}}", "both sections apply to the same daemons"),
        (
            BLOB,
            "{ceph: {osd/class:hdd: {bluestore_max_blob_size: 1M}}}",
            "both sections apply to the same daemons",
        ),
        ("{ceph: {osd: {debug_ms: 1}}}", "{ceph: {osd.2: {debug_ms: 0}}}", "both sections apply"),
        ("{pool: {size: 2}}", "{pool: {size: 3}}", "pool/pool/size = 2 and 3"),
        ("{pool: {crush_rule: ssd}}", "{pool: {devices: {class: hdd}}}", "two pools"),
        ("{pool: {use: fast}}", "{pool: {erasure: {k: 2, m: 1}}}", "two pools"),
        ("{pool: {erasure: {k: 2, m: 1}}}", "{pool: {size: 3}}", "two pools: a is erasure coded"),
        ("{volume: {type: gold}}", "{pool: {size: 3}}", "two pools: the volume type of a"),
        ("{pool: {crush_rule: ssd}}", "{ceph: {osd: {bluestore_max_blob_size_hdd: 1M}}}", "has no effect"),
        (
            BLOB,
            "{pool: {size: 3}, ceph: {osd: {bluestore_max_blob_size: 512K}}}",
            "both have bluestore_max_blob_size",
        ),
    ],
)
def test_a_conflict_names_the_settings(one: str, other: str, reason: str) -> None:
    a, b = of(a=one, b=other)
    assert reason in conflict_of(a, b)
    assert conflict_of(b, a), "in any order"
    found = possible_combinations([a, b])
    assert found.sets == ()
    assert [c.names for c in found.conflicts] == [("a", "b")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BLOB, "{pool: {crush_rule: ssd}}"),
        (BLOB, "{image: {stripe_unit: 64K, stripe_count: 8}}"),
        (
            "{ceph: {osd/class:hdd: {bluestore_max_blob_size: 512K}}}",
            "{ceph: {osd/class:ssd: {bluestore_max_blob_size: 1M}}}",
        ),
        ("{ceph: {osd: {debug_ms: 1}}}", "{ceph: {client: {debug_ms: 0}}}"),
        ("{ceph: {osd.1: {debug_ms: 1}}}", "{ceph: {osd.2: {debug_ms: 0}}}"),
        ("{pool: {crush_rule: hybrid}}", "{ceph: {osd: {bluestore_max_blob_size_hdd: 1M}}}"),
        ("{volume: {qos: {total_iops_sec: 500}}}", "{pool: {size: 3}}"),
    ],
)
def test_other_settings_are_merged(one: str, other: str) -> None:
    a, b = of(a=one, b=other)
    assert conflict_of(a, b) == ""
    both = merged([a, b], "why")
    assert set(both.settings) == {*a.settings, *b.settings}
    assert (both.name, both.why) == ("a.b", "why")


def test_pairs_and_the_set_of_all_that_agree() -> None:
    a, b, c, d = of(
        a=BLOB,
        b="{pool: {size: 3}}",
        c="{ceph: {osd: {bluestore_max_blob_size: 256K}}}",
        d="{image: {object_size: 8M}}",
    )
    found = possible_combinations([a, b, c, d])
    names = [tuple(x.name for x in one) for one in found.sets]
    assert names == [("a", "b"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d"), ("a", "b", "d")]
    assert [x.names for x in found.conflicts] == [("a", "c")]


@pytest.mark.parametrize("name", [name for name in bundled_sweeps() if name != "micro"])  # no prediction uses it
def test_every_bundled_sweep_survives_being_written(name: str) -> None:
    sweep = read_sweep(bundled_sweep(name))
    own = replace(sweep.measurement, loads=())
    written = sweep_of(sweep, sweep.configurations, own, name=f"{name}-next", description="again")
    assert written.configurations == sweep.configurations
    assert written.measurement == own
    assert (written.accept_risk, written.omits_gone_options) == (sweep.accept_risk, sweep.omits_gone_options)
    assert parse_sweep(written.text, file="again").digest == written.digest


def test_limits_of_volumes_and_nested_keys_are_written() -> None:
    base = parse_sweep(SWEEP.format(configurations="  x: {pool: {size: 3}}"), file="s.yaml")
    settings = (
        Setting(Partition.POOL, "pool", "cache.mode", "writeback"),
        Setting(Partition.POOL, "volume", "qos.total_iops_sec", 500),
    )
    written = sweep_of(base, [Configuration("c", settings)], base.measurement, name="n", description="d")
    assert written.configuration("c").settings == settings


def test_long_names_are_cut() -> None:
    a, b = of(a=BLOB, b="{pool: {size: 3}}")
    long = merged([replace(a, name="a" * 30), replace(b, name="b" * 30)])
    assert len(long.name) <= 40

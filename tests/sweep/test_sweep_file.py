"""Sweep files: their meaning, and errors with the line, the wrong word and the nearest right one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thesis_tables import thesis_table

from cephfit.core.errors import InputError
from cephfit.core.units import GIB, MIB
from cephfit.core.values.cells import CELLS
from cephfit.core.values.configuration import Partition, Setting
from cephfit.core.values.measurement import CacheCondition
from cephfit.sweep.declaration.sweep_file import bundled_sweep, bundled_sweeps, find_sweep, parse_sweep, read_sweep

BLOB = "ceph: {osd: {bluestore_max_blob_size_hdd: 512K}}"


def test_the_bundled_sweeps_can_be_read_and_quick_holds_the_default_twice() -> None:
    assert set(bundled_sweeps()) >= {"quick", "meyer2017"}
    quick = read_sweep(bundled_sweep("quick"))
    assert len(quick.measurement.cells) == 20
    names = [c.name for c in quick.configurations]
    assert names[:2] == ["A", "A-again"]
    assert len(names) >= 6
    assert not quick.configuration("A").settings
    assert not quick.configuration("A-again").settings


def test_the_brief_form_of_storage_nodes_measures_the_same_configurations() -> None:
    """Both restart only the OSDs of the class that they measure."""
    brief = read_sweep(Path(__file__).parents[2] / "benchmarks" / "storage_nodes_brief.yaml")
    whole = {c.name: c.settings for c in read_sweep(bundled_sweep("storage-nodes")).configurations}
    assert {c.name: c.settings for c in brief.configurations}.items() <= whole.items()
    assert set(brief.measurement.cells) <= set(read_sweep(bundled_sweep("storage-nodes")).measurement.cells)
    of_daemons = [s for settings in whole.values() for s in settings if s.partition is Partition.CEPH]
    assert {s.scope for s in of_daemons} == {"osd/class:hdd"}


def test_meyer2017_measures_as_the_thesis_did() -> None:
    sweep = read_sweep(find_sweep("meyer2017"))
    assert [c.name for c in sweep.configurations] == list("ABCDEFGHIJKLMNOPQRSTUVWX")
    assert all(len(c.settings) == 1 for c in sweep.configurations[1:])
    m = sweep.measurement
    assert (m.n_clients, m.volume_nbytes, m.repeats, m.ramp_seconds, m.run_seconds) == (12, 10 * GIB, 9, 15, 300)
    assert (m.ioengine, m.iodepth, m.direct, m.cells) == ("sync", 1, True, CELLS)


def test_meyer2017_has_the_values_of_table_3_5() -> None:
    sweep = read_sweep(find_sweep("meyer2017"))
    for row in thesis_table("meyer_configurations.csv"):
        settings = [(s.key, str(s.value)) for s in sweep.configuration(row["configuration"]).settings]
        assert settings == ([(row["parameter"], row["value"])] if row["parameter"] else [])


def test_a_file_becomes_settings_in_their_partitions() -> None:
    sweep = parse_sweep(
        """\
schema_version: 1
name: parts
configurations:
  all:
    pool: {crush_rule: hybrid, size: 2}
    image: {object_size: 64K}
    ceph:
      "osd/class:hdd": {osd op num shards: 5}
      global: {ms_tcp_nodelay: off}
    greater:
      client_disk: {read_ahead_kb: 0}
measurement: {sizes: [4K], clients: 2, volume_size: 512M, repeats: 3, run_seconds: 2, cache: warm, seed: 1}
accept_risk: [size]
""",
        file="parts.yaml",
    )
    assert set(sweep.configuration("all").settings) == {
        Setting(Partition.POOL, "pool", "crush_rule", "hybrid"),
        Setting(Partition.POOL, "pool", "size", 2),
        Setting(Partition.POOL, "image", "object_size", "64K"),
        Setting(Partition.CEPH, "osd/class:hdd", "osd_op_num_shards", 5),
        Setting(Partition.CEPH, "global", "ms_tcp_nodelay", "off"),
        Setting(Partition.GREATER, "client_disk", "read_ahead_kb", 0),
    }
    assert sweep.configurations[0].name == "A", "the default is implied"
    assert sweep.measurement.volume_nbytes == 512 * MIB
    assert sweep.measurement.cache is CacheCondition.WARM
    assert [str(c) for c in sweep.measurement.cells] == ["4K-read", "4K-write", "4K-randread", "4K-randwrite"]


def test_volumes_hold_whole_objects_also_where_only_small_blocks_are_measured(small_text: str) -> None:
    """fio fills and warms in blocks of 4M, and omits a remainder below one block."""
    text = small_text.replace("sizes: [4K, 1M]", "sizes: [4K]")
    parse_sweep(text, file="small.yaml")
    with pytest.raises(InputError, match="volume of 10M does not hold whole blocks of 4M"):
        parse_sweep(text.replace("volume_size: 4M", "volume_size: 10M"), file="small.yaml")
    stored = parse_sweep(text.replace("volume_size: 4M", "volume_size: 10M"), file="run r1", stored=True)
    assert stored.measurement.volume_nbytes == 10 * MIB, "stored sweep files remain readable"


@pytest.mark.parametrize(
    ("old", "new", "where", "what", "remedy"),
    [
        ("run_seconds: 1", "run_secnds: 1", "small.yaml:16", "run_secnds", "run_seconds"),
        ("name: small", "nmae: small", "small.yaml:2", "nmae", "name"),
        ("sizes: [4K, 1M]", "sizes: [4K, 1m]", "small.yaml:10", "1m", "'1M'"),
        ("patterns: [read, randwrite]", "patterns: [read, rndwrite]", "small.yaml:11", "rndwrite", "randwrite"),
        ("volume_size: 4M", "volume_size: 4X", "small.yaml:13", "4X", "512M"),
        ("volume_size: 4M", "volume_size: 4100K", "small.yaml:13", "4100K", "multiple of 4M"),
        ("clients: 2", "clients: two", "small.yaml:12", "'two'", ""),
        ("clients: 2", "clients: 0", "small.yaml:12", "at least 1", ""),
        ("repeats: 2", "repeats: true", "small.yaml:14", "truth value", ""),
        ("iodepth: 4", "iodepth: 4\n  ioengine: psync", "small.yaml:17", "one I/O in flight", "libaio"),
        ("iodepth: 4", "iodepth: 4\n  ioengine: libiao", "small.yaml:18", "libiao", "libaio"),
        ("seed: 7", "seed: 7\n  seed: 8", "small.yaml:19", "twice", "line 18"),
        ("  blob:\n", "  no-deferred:\n", "small.yaml:7", "twice", "line 4"),
        ("ceph: {osd: {blue", "ceph: {ods: {blue", "small.yaml:6", "ods", "osd"),
        ("    why: small", "    wy: small", "small.yaml:5", "wy", "why"),
        ("  blob:\n", "  A:\n", "small.yaml:8", "is the default", "another name"),
        ("schema_version: 1", "schema_version: 9", "small.yaml:1", "9", "reads schema_version 1"),
        ("  seed: 7\n", "", "small.yaml:10", "lacks 'seed'", "seed"),
        ("name: small", "name: [small", "small.yaml", "not YAML", "every bracket"),
        ("clients: 2", " clients: 2", "small.yaml:1", "not YAML", "begin in one column"),
        ("  clients: 2", "\tclients: 2", "small.yaml:12", "not YAML", "never by tabs"),
        ("repeats: 2", "repeats: 100000000000", "small.yaml:14", "at most 1000, not 100000000000", ""),
        ("seed: 7", "seed: 99999999999999999999999", "small.yaml:18", "at most 9223372036854775807", ""),
        ("iodepth: 4", "iodepth: 9223372036854775808", "small.yaml:17", "at most 9223372036854775807", ""),
        ("  blob:\n", "  größe:\n", "small.yaml:8", "cannot be a configuration's name", "a to z"),
        ("name: small", "name: größe", "small.yaml:2", "cannot be a sweep's name", "a to z"),
        ("sizes: [4K, 1M]", "sizes: &a [*a]", "small.yaml:10", "without end", "write out"),
        (BLOB, "image: {stripe_cnt: 4}", "small.yaml:8", "an image has no 'stripe_cnt'", "'stripe_count'"),
        (BLOB, "image: {size: 3}", "small.yaml:8", "an image has no 'size'", "object_size"),
        (BLOB, "pool: {pgnum: 64}", "small.yaml:8", "a pool has no 'pgnum'", "'pg_num'"),
        (BLOB, "pool: {devices: {clas: ssd}}", "small.yaml:8", "no 'devices.clas'", "'devices.class'"),
        (BLOB, "pool: {uze: fast}", "small.yaml:8", "a pool has no 'uze'", "'use'"),
        (
            BLOB,
            "pool: {size: 1}",
            "small.yaml:8",
            "risks data",
            "accept_risk: [size]",
        ),
    ],
)
def test_an_error_names_line_word_and_the_nearest_right_one(
    small_text: str, old: str, new: str, where: str, what: str, remedy: str
) -> None:
    assert old in small_text
    with pytest.raises(InputError) as caught:
        parse_sweep(small_text.replace(old, new, 1), file="small.yaml")
    assert caught.value.where.startswith(where)
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def with_product(text: str, n_factors: int, n_values: int) -> str:
    values = ", ".join(str(i + 1) for i in range(n_values))
    lists = "".join(f"      osd_option_{i}: [{values}]\n" for i in range(n_factors))
    return f"{text}design:\n  kind: product\n  settings:\n    ceph:\n     osd:\n{lists}"


def test_a_product_that_is_too_large_is_refused_at_once(small_text: str) -> None:
    with pytest.raises(InputError, match=r"small\.yaml:2\d: this product has 1000000000000 configurations"):
        parse_sweep(with_product(small_text, 12, 10), file="small.yaml")


def test_too_many_runs_are_refused(small_text: str) -> None:
    text = with_product(small_text.replace("repeats: 2", "repeats: 1000"), 2, 30)
    with pytest.raises(
        InputError, match=r"903 configurations in 4 cells, each 1000 times, are 3612000 runs"
    ) as caught:
        parse_sweep(text, file="small.yaml")
    assert caught.value.where == "small.yaml:14"
    stored = parse_sweep(text.replace("1000", "2000"), file="run r1", stored=True)
    assert stored.measurement.repeats == 2000, "stored sweep files remain readable"


def test_aliases_that_multiply_are_refused_before_they_fill_the_memory(small_text: str) -> None:
    laughs = "".join(f"  x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 12))
    with pytest.raises(InputError, match="without end"):
        parse_sweep(f"{small_text}  x0: &x0 [1]\n{laughs}", file="small.yaml")


def test_deep_nesting_is_refused(small_text: str) -> None:
    with pytest.raises(InputError, match="lists or mappings are nested too deeply"):
        parse_sweep(small_text.replace("[4K, 1M]", "[" * 5000 + "]" * 5000), file="small.yaml")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_is_refused_with_a_remedy(
    tmp_path: Path, small_text: str, encoding: str
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(small_text.replace("why: small", "why: größer"), encoding=encoding)
    with pytest.raises(InputError, match="not text in UTF-8") as caught:
        read_sweep(path)
    assert "save your file as UTF-8" in caught.value.remedy


def test_a_risk_is_taken_when_it_is_accepted_by_name(small_text: str) -> None:
    risky = small_text.replace("ceph: {osd: {bluestore_max_blob_size_hdd: 512K}}", "pool: {size: 1, min_size: 1}")
    with pytest.raises(InputError, match="min_size"):
        parse_sweep(risky + "accept_risk: [size]\n", file="f")
    sweep = parse_sweep(risky + "accept_risk: [size, min_size]\n", file="f")
    assert len(sweep.configuration("blob").settings) == 2


@pytest.mark.parametrize("key", ["bluestore_csum_type: none", "osd_debug_inject_dispatch_delay_duration: 1"])
def test_checksums_off_and_debug_injection_are_risks(small_text: str, key: str) -> None:
    with pytest.raises(InputError, match="risks data"):
        parse_sweep(small_text.replace("bluestore_max_blob_size_hdd: 512K", key), file="f")


def test_the_digest_depends_on_the_meaning(small_text: str) -> None:
    digest = parse_sweep(small_text, file="f").digest
    same = [
        "# a comment\n" + small_text,
        small_text.replace("why: small writes go straight to the disk", "why: other words"),
        small_text.replace("volume_size: 4M", "volume_size: 4096K"),
        small_text.replace("sizes: [4K, 1M]", "sizes:\n    - 1M\n    - 4K"),
    ]
    other = [
        small_text.replace("seed: 7", "seed: 8"),
        small_text.replace("512K", "256K"),
        small_text.replace("run_seconds: 1", "run_seconds: 2"),
        small_text.replace("  blob:", "  blob2:"),
    ]
    assert {parse_sweep(text, file="f").digest for text in same} == {digest}
    assert digest not in {parse_sweep(text, file="f").digest for text in other}


@given(st.binary(max_size=200))
def test_any_bytes_give_an_input_error(tmp_path_factory: pytest.TempPathFactory, head: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(head)
    with pytest.raises(InputError):
        read_sweep(path)


def test_an_unknown_sweep_name_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'quick'"):
        find_sweep("quik")
    with pytest.raises(InputError, match="no sweep file"):
        find_sweep(str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match="this is a folder"):
        find_sweep(str(tmp_path))

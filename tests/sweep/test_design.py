"""Designs in sweep files: their configurations, the names of these, and refused designs."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thesis_tables import thesis_table

from cephfit.core.errors import InputError
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.sweep import factorial_design
from cephfit.sweep.declaration.file_settings import NAME
from cephfit.sweep.declaration.sweep_file import bundled_sweep, parse_sweep, read_sweep
from cephfit.sweep.factorial_design import MAX_NAME, Factor, Level, Span, as_name, shortened
from cephfit.sweep.sweep_plan import Sweep

HEAD = "schema_version: 1\nname: d\n"
TAIL = """
measurement: {sizes: [4K], patterns: [read], clients: 1, volume_size: 4M, repeats: 2, run_seconds: 1, seed: 1}
"""


def sweep_of(design: str) -> Sweep:
    return parse_sweep(HEAD + design + TAIL, file="d.yaml")


def settings(configuration: Configuration) -> dict[str, object]:
    return {s.key: s.value for s in configuration.settings}


def test_one_at_a_time_sets_each_value_alone_as_in_the_thesis() -> None:
    sweep = sweep_of("""\
design:
  kind: one-at-a-time
  settings:
    pool: {pg_num: [32, 64]}
    ceph: {osd: {osd_op_num_shards: [default, 2, 8]}}
""")
    assert {c.name: settings(c) for c in sweep.configurations} == {
        "A": {},
        "pg_num-32": {"pg_num": 32},
        "pg_num-64": {"pg_num": 64},
        "osd_op_num_shards-2": {"osd_op_num_shards": 2},
        "osd_op_num_shards-8": {"osd_op_num_shards": 8},
    }
    assert sweep.configuration("pg_num-64").why == "pg_num = 64"


def test_a_product_has_all_combinations_except_the_default() -> None:
    """Settings of one factor vary together; a factor of `default` and one value gives its own name."""
    sweep = sweep_of("""\
design:
  kind: product
  settings:
    image: {object_size: [1M, 8M]}
  factors:
    ssd: {pool: {crush_rule: [default, ssd]}}
    journaling:
      image: {features: [default, "layering,journaling"]}
      ceph: {client: {rbd_journal_max_payload_bytes: [default, 4M]}}
""")
    assert [c.name for c in sweep.configurations] == [
        "A",
        *("object_size-1M", "object_size-1M.journaling", "object_size-1M.ssd", "object_size-1M.ssd.journaling"),
        *("object_size-8M", "object_size-8M.journaling", "object_size-8M.ssd", "object_size-8M.ssd.journaling"),
    ]
    assert settings(sweep.configuration("object_size-8M.ssd.journaling")) == {
        "object_size": "8M",
        "crush_rule": "ssd",
        "features": "layering,journaling",
        "rbd_journal_max_payload_bytes": "4M",
    }
    defaults = sweep_of("design: {kind: product, settings: {pool: {pg_num: [default, 64], size: [default, 3]}}}")
    assert {c.name for c in defaults.configurations} == {"A", "size", "pg_num", "pg_num.size"}, (
        "no row of defaults"
    )


def test_combinations_take_values_column_by_column_with_given_names() -> None:
    sweep = sweep_of("""\
design:
  kind: combinations
  names: [small, large]
  settings:
    ceph: {osd: {journal_max_write_entries: [100, 1000], journal_max_write_bytes: [10M, 1000M]}}
""")
    assert settings(sweep.configuration("large")) == {
        "journal_max_write_entries": 1000,
        "journal_max_write_bytes": "1000M",
    }
    assert [c.name for c in sweep.configurations] == ["A", "small", "large"]


def test_a_screening_of_eight_factors_has_twelve_rows_of_which_one_is_the_default() -> None:
    keys = [f"osd_key_{i}" for i in range(8)]
    lists = ", ".join(f"{key}: [default, 1]" for key in keys)
    sweep = sweep_of(f"design: {{kind: screening, settings: {{ceph: {{osd: {{{lists}}}}}}}}}")
    (design,) = sweep.designs
    assert [c.name for c in sweep.configurations] == ["A", *(f"screen-{i:02d}" for i in range(1, 12))]
    assert len(design.rows) == 12
    assert [r.configuration for r in design.rows].count("A") == 1
    signs = np.array([[-1 if level.is_default else 1 for level in row.levels] for row in design.rows])
    assert (signs.T @ signs == 12 * np.eye(8)).all(), "every factor is varied independently of every other"
    assert (signs.sum(axis=0) == 0).all(), "and has each level equally often"


@pytest.mark.parametrize("runs", factorial_design.SCREENING_RUNS)
def test_screening_arrays_are_orthogonal_and_have_one_row_of_first_levels(runs: int) -> None:
    array = factorial_design.plackett_burman(runs)
    assert array.shape == (runs, runs - 1)
    assert (array.T @ array == runs * np.eye(runs - 1)).all()
    assert (array == -1).all(axis=1).sum() == 1


def test_a_foldover_adds_every_row_with_levels_exchanged() -> None:
    factors = [Factor(n, (Level("0", ()), Level("1", (Setting(Partition.POOL, "pool", n, 1),)))) for n in "abcd"]
    rows = factorial_design.screening(factors, 8, foldover=True)
    assert len(rows) == 16
    for one, other in zip(rows[:8], rows[8:], strict=True):
        assert all(a != b for a, b in zip(one, other, strict=True))


SAMPLE = """\
design:
  kind: sample
  points: 16
  seed: {seed}
  method: {method}
  settings:
    ceph:
      osd:
        bluestore_cache_size: {{low: 64M, high: 4G, scale: log}}
        osd_op_num_shards: {{low: 1, high: 16}}
        bluestore_csum_type: [crc32c, crc32c_16, xxhash32, xxhash64]
"""


@pytest.mark.parametrize("method", ["latin-hypercube", "sobol"])
def test_a_sample_fills_the_space_evenly_and_is_the_same_for_the_same_seed(method: str) -> None:
    sweep = sweep_of(SAMPLE.format(seed=5, method=method))
    points = [settings(c) for c in sweep.configurations[1:]]
    assert len(points) == 16
    csum = [p["bluestore_csum_type"] for p in points]
    assert {csum.count(word) for word in set(csum)} == {4}, "each of four words in four of sixteen points"
    sizes = sorted(_mib(str(p["bluestore_cache_size"])) for p in points)
    assert 64 <= sizes[0] < 64 * 64 ** (1 / 16) * 1.01, "one point in every sixteenth of the range, by factors"
    assert sizes[-1] <= 4096
    shards = [p["osd_op_num_shards"] for p in points]
    assert all(isinstance(n, int) for n in shards), "whole numbers stay whole"
    again = sweep_of(SAMPLE.format(seed=5, method=method))
    assert again.digest == sweep.digest
    assert sweep_of(SAMPLE.format(seed=6, method=method)).digest != sweep.digest


def _mib(text: str) -> float:
    number, unit = float(text[:-1]), text[-1]
    return number * {"K": 1 / 1024, "M": 1, "G": 1024}[unit]


@given(
    st.floats(0, 1),
    st.integers(1, 10**9),
    st.integers(1, 10**9),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 4096.0]),
)
def test_a_range_never_leaves_its_ends(u: float, low: int, width: int, is_log: bool, step: float) -> None:
    span = Span(Partition.CEPH, "osd", "k", low, low + width, is_log=is_log, step=min(step, width))
    value = span.level(u).settings[0].value
    assert isinstance(value, int | float)
    assert low * (1 - 1e-5) <= value <= (low + width) * (1 + 1e-5)


@given(st.text(max_size=80), st.text(max_size=30))
def test_generated_names_are_always_valid(text: str, tail: str) -> None:
    name = shortened(as_name(text), tail=f"-{as_name(tail)}")
    assert len(name) <= MAX_NAME
    assert NAME.fullmatch(name)


def test_long_names_keep_their_value_and_stay_distinct() -> None:
    design = "design: {kind: one-at-a-time, settings: {ceph: {osd: {%s: [4194304, 8388608], %s: [4194304]}}}}"
    keys = ("filestore_wbthrottle_xfs_bytes_start_flusher", "filestore_wbthrottle_xfs_bytes_hard_limit")
    names = [c.name for c in sweep_of(design % keys).configurations[1:]]
    assert len(set(names)) == 3
    assert all(len(n) <= MAX_NAME and n.startswith("filestore_wbthrottle_xfs_") for n in names)
    assert [n.rsplit("-")[-1] for n in names] == ["4194304", "8388608", "4194304"]


def test_the_digest_depends_on_configurations_not_on_notation() -> None:
    by_design = sweep_of("design: {kind: one-at-a-time, settings: {pool: {pg_num: [32]}}}")
    by_hand = sweep_of("configurations: {pg_num-32: {pool: {pg_num: 32}}}")
    assert by_design.digest == by_hand.digest


REFUSED = {
    "design: {kind: screning, settings: {pool: {size: [2, 3]}}}": "did you mean 'screening'",
    "design: {kind: product}": "this design has no factors",
    "design: {kind: product, settings: {pool: {pg_num: {low: 1, high: 9}}}}": "has a range",
    "design: {kind: product, points: 3, settings: {pool: {pg_num: [1]}}}": "unknown word 'points'",
    "design: {kind: screening, settings: {pool: {pg_num: [1, 2, 3]}}}": "two values of every factor",
    "design: {kind: screening, runs: 9, settings: {pool: {pg_num: [1, 2]}}}": "choose from|did you mean",
    "design: {kind: combinations, settings: {pool: {pg_num: [1, 2], pgp_num: [1]}}}": ": pg_num 2, pgp_num 1",
    "design: {kind: combinations, names: [x], settings: {pool: {pg_num: [1, 2]}}}": "1 different names for 2",
    "design: {kind: sample, points: 6, seed: 1, method: sobol, settings: {pool: {pg_num: [1]}}}": "powers of two",
    "design: {kind: sample, points: 6, settings: {pool: {pg_num: [1, 2]}}}": "lacks 'seed'",
    "design: {kind: one-at-a-time, settings: {pool: {pg_num: [1, 1]}}}": "the same value twice",
    "design: {kind: one-at-a-time, settings: {pool: {size: [1]}}}": "risks data",
    "design: {kind: sample, points: 4, seed: 1, settings: {pool: {size: {low: 1, high: 3}}}}": "risks data",
    "configurations: {pg_num-1: {}}\ndesign: {kind: one-at-a-time, settings: {pool: {pg_num: [1]}}}": "two config",
    "design: {kind: optimise, trials: 4, seed: 1, cell: 1M-read, settings: {pool: {pg_num: [1]}}}": "not one of",
    "stopping: {within_percent: 5, minimum: 2}": "repeats is the maximum",
    "stopping: {margin_percent: 5}": "no rule for stopping is given",
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_invalid_file_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        sweep_of(text)
    assert re.match(r"d\.yaml:\d+", caught.value.where)
    assert re.search(REFUSED[text], str(caught.value))


def test_the_ready_sweep_of_the_literature_is_table_b_1() -> None:
    rows = thesis_table("meyer_literature_configurations.csv")
    sweep = read_sweep(bundled_sweep("literature"))
    for row, letter in itertools.product(rows, "ABCDEFGHI"):
        found = settings(sweep.configuration(f"lit-{letter}"))
        if row["parameter"] == "debugging":
            levels = {value for key, value in found.items() if key.startswith("debug_")}
            assert levels == (set() if row[letter] == "true" else {"0/0"})
        elif (row["parameter"], letter) not in (("rbd_cache", "D"), ("rbd_cache", "E")):  # garbled in the scan
            assert str(found[row["parameter"]]).lower() == row[letter]

"""Screenings: planted effects are found, inert settings are not, and interactions are reported."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from simulated_truth import true_iops

from cephfit.cli.sweep.sweep_commands import command as sweep_command
from cephfit.core.errors import InputError
from cephfit.core.protocols import NullProgress
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.sample import Metrics, Run, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.results.store.sample_store import Store
from cephfit.sweep import factorial_design
from cephfit.sweep.declaration.sweep_file import parse_sweep, read_sweep
from cephfit.sweep.effects import effects_of, effects_on_cells, effects_on_profile, screening_of
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.factorial_design import Design, DesignKind, Factor, Level, Row, row_names
from cephfit.sweep.sweep_plan import Goal, even_profile
from cephfit.targets.simulated import SimulatedTarget, Simulation

RECORDED = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "lab_screening.yaml"

SCREENING = """\
schema_version: 1
name: screening
design:
  kind: screening
  factors:
    copies: {pool: {size: [default, 3]}}
    journaling: {image: {features: [default, "layering,journaling"]}}
    blob: {ceph: {osd: {bluestore_max_blob_size_hdd: [default, 512K]}}}
    no-deferred: {ceph: {osd: {bluestore_prefer_deferred_size_hdd: [default, 0]}}}
  settings:
    ceph:
      osd: {osd_max_backfills: [1, 3], osd_snap_trim_sleep: [default, 2], osd_heartbeat_grace: [20, 30]}
measurement:
  sizes: [32K, 1M]
  patterns: [randread, randwrite]
  clients: 1
  volume_size: 4M
  repeats: 2
  run_seconds: 1
  seed: 3
"""


def two_levels(names: str) -> tuple[Factor, ...]:
    return tuple(
        Factor(n, (Level("default", ()), Level("1", (Setting(Partition.CEPH, "osd", n, 1),)))) for n in names
    )


def screening(names: str, runs: int) -> Design:
    factors = two_levels(names)
    rows = factorial_design.screening(factors, runs, foldover=False)
    labels = row_names("s", factors, rows, numbered=True)
    found = tuple(Row(label, levels) for label, levels in zip(labels, rows, strict=True))
    return Design(DesignKind.SCREENING, "s", factors, found)


def test_planted_effects_are_found_and_inert_settings_are_not(store: Store) -> None:
    """Seven factors in twelve configurations; the simulated effects are known, and multiply in these cells."""
    sweep = parse_sweep(SCREENING, file="f")
    target = SimulatedTarget(Simulation(noise=0.05))
    run = run_sweep(sweep, target, store, NullProgress(), resume=None)
    samples = store.samples(run.run_id)
    design = screening_of(sweep.designs)
    found = {
        e.of: {x.factor: x for x in e.effects} for e in effects_on_cells(design, samples, sweep.measurement.cells)
    }
    planted = {
        "32K-randread": set(),
        "32K-randwrite": {"copies", "journaling", "no-deferred"},
        "1M-randread": {"blob"},
        "1M-randwrite": {"copies", "journaling", "blob"},
    }
    settings = {f.name: f.levels[1].settings for f in design.factors}

    def rate(cell: str, factor: str) -> float:
        configuration = Configuration(factor, settings.get(factor, ()))
        return true_iops(configuration, Cell.parse(cell), n_clients=1, iodepth=1)

    for cell, factors in planted.items():
        assert {name for name, effect in found[cell].items() if effect.everywhere} == factors
        for name in factors:
            ratio = rate(cell, name) / rate(cell, "default")
            assert found[cell][name].low <= 100 * (ratio - 1) <= found[cell][name].high


def test_effects_on_a_workload_are_shown_too(store: Store) -> None:
    sweep = parse_sweep(SCREENING.replace("[32K, 1M]", "[32K]"), file="f")
    run = run_sweep(sweep, SimulatedTarget(Simulation(noise=0.05)), store, NullProgress(), resume=None)
    goal = Goal(lambda c: predictor("time", confidence=c), "time", even_profile(sweep.measurement))
    found = effects_on_profile(screening_of(sweep.designs), store.samples(run.run_id), goal)
    assert found is not None
    significant = {e.factor: e.percent for e in found.effects if e.matters}
    assert set(significant) == {"copies", "journaling", "no-deferred"}, "its accesses are smaller than a blob"
    assert significant["copies"] == pytest.approx(100 * (1 / 1.3 - 1), abs=6)
    assert significant["journaling"] < 0


def test_an_unfinished_screening_is_marked(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.sqlite", create=True) as opened:
        opened.add_run(Run("r1", "screening", SCREENING, "0" * 64, "bench", 7, 1))
    output = CliRunner().invoke(sweep_command, ["effects", "--store", str(tmp_path / "s.sqlite")]).output
    assert output.splitlines()[1].startswith("UNFINISHED")


def test_a_screening_of_the_real_lab_finds_the_fast_disks_and_the_journal_and_nothing_inert() -> None:
    """Recorded: eight factors in twelve configurations of the one-machine lab, three rounds."""
    sweep = read_sweep(RECORDED)
    samples = []
    with RECORDED.with_suffix(".csv").open() as file:
        for row in csv.DictReader(file):
            iops, cell = float(row["iops"]), Cell.parse(f"{row['size']}-{row['pattern']}")
            key = SampleKey(row["configuration"], cell, row["client"], int(row["run"]))
            samples.append(Sample(key, State.OK, Metrics(iops, iops, 1, 1, 1.0), 0, 0))
    tables = {e.of: e for e in effects_on_cells(screening_of(sweep.designs), samples, sweep.measurement.cells)}
    significant = {of: {x.factor for x in e.effects if x.matters} for of, e in tables.items()}
    for cell in ("4K-write", "4K-randwrite"):
        assert significant[cell] == {"ssd", "journaling"}
    for cell in ("4K-read", "4K-randread"):
        assert significant[cell] == {"ssd"}
    inert = {"osd_max_backfills", "osd_heartbeat_grace", "osd_snap_trim_sleep", "osd_recovery_max_active"}
    assert not any(names & inert for names in significant.values())
    assert {of for of, e in tables.items() if e.lack} <= {"1M-read", "1M-write", "1M-randread", "1M-randwrite"}


def table(design: Design, betas: dict[str, float], *, noise: float, rounds: int, pair: float = 0.0, seed: int = 0):  # type: ignore[no-untyped-def]
    dice = np.random.default_rng(seed)
    table = {}
    for row in design.rows:
        signs = {f.name: -1 if v.is_default else 1 for f, v in zip(design.factors, row.levels, strict=True)}
        truth = sum(betas.get(name, 0.0) * sign for name, sign in signs.items()) + pair * signs["a"] * signs["b"]
        for r in range(rounds):
            table[row.configuration, r] = truth + 0.3 * r + float(dice.normal(0, noise))
    return table


def test_without_noise_the_effects_are_the_planted_ones_and_rounds_do_not_matter() -> None:
    design = screening("abcdefg", 12)
    planted = table(design, {"b": 0.1, "f": -0.2}, noise=1e-9, rounds=2)
    found = effects_of("x", design, planted, confidence=0.95, n_tables=1)
    assert found is not None
    assert {e.factor: round(e.percent, 4) for e in found.effects if abs(e.percent) > 1e-3} == {
        "b": round(100 * math.expm1(0.2), 4),
        "f": round(100 * math.expm1(-0.4), 4),
    }


def test_intervals_hold_jointly_in_nineteen_of_twenty_screenings() -> None:
    """400 screenings without any effect: some factor is significant in 5 %, at most in 8 % by chance (3 sigma)."""
    design = screening("abcdefg", 12)
    false = 0
    for seed in range(400):
        found = effects_of(
            "x", design, table(design, {}, noise=0.1, rounds=2, seed=seed), confidence=0.95, n_tables=1
        )
        assert found is not None
        false += any(e.matters for e in found.effects)
    assert false / 400 <= 0.083


def test_interactions_widen_the_intervals_and_are_reported() -> None:
    design = screening("abcdefg", 12)
    found = effects_of("x", design, table(design, {}, noise=0.02, rounds=3, pair=0.3), confidence=0.95, n_tables=1)
    assert found is not None
    assert found.lack
    assert not any(e.matters for e in found.effects), "one third of a pair's effect is on every other factor"


def test_a_failed_row_does_not_prevent_the_analysis() -> None:
    design = screening("abcdefg", 12)
    whole = table(design, {"c": 0.5}, noise=0.05, rounds=3)
    lost = {place: value for place, value in whole.items() if place[0] != "s-03"}
    found = effects_of("x", design, lost, confidence=0.95, n_tables=1)
    assert found is not None
    assert found.rows == 11
    assert [e.factor for e in found.effects if e.matters] == ["c"]
    few = {place: value for place, value in whole.items() if place[0] in ("A", "s-01", "s-02")}
    assert effects_of("x", design, few, confidence=0.95, n_tables=1) is None


def test_a_sweep_without_a_screening_has_no_effects() -> None:
    with pytest.raises(InputError, match="no screening"):
        screening_of(())

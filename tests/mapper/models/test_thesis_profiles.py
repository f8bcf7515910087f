"""The five workloads of the thesis (Meyer 2017, Tables 5.1-5.5) as profile files."""

from pathlib import Path

import pytest

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Op, Pattern
from cephfit.core.values.profile import Profile
from cephfit.mapper import MODELS, predictor

PROFILES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "profiles"
TOTALS = {
    "blogbench": 122338,
    "postmark": 2658283,
    "dbench": 730578,
    "kernel-compile": 14008,
    "pgbench": 2082155,
}
RANDOM_PCT = {
    "blogbench": (89.9, 71.7),
    "postmark": (5.8, 25.3),
    "dbench": (6.2, 94.6),
    "kernel-compile": (24.6, 48.3),
    "pgbench": (70.0, 76.7),
}


def load(name: str) -> Profile:
    path = PROFILES / f"{name}.json"
    return Profile.loads(path.read_text(), where=path.name)


def test_there_is_a_file_for_each_workload() -> None:
    assert {path.stem for path in PROFILES.glob("*.json")} == set(TOTALS)


@pytest.mark.parametrize("name", TOTALS)
def test_the_bins_add_up_to_the_tables_total(name: str) -> None:
    profile = load(name)
    assert profile.n_accesses == TOTALS[name]
    assert sum(profile.cell_counts().values()) == pytest.approx(TOTALS[name], rel=1e-12)
    assert (profile.random[Op.READ] * 100, profile.random[Op.WRITE] * 100) == pytest.approx(RANDOM_PCT[name])
    assert "Meyer" in profile.description["source"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", TOTALS)
def test_a_configuration_faster_at_small_random_writes_is_worth_their_share(name: str, model: str) -> None:
    """With every cell equally fast, the share of the accesses is the share of the time."""
    profile = load(name)
    doubled = next(c for c in CELLS if (c.size.name, c.pattern) == ("4K", Pattern.RANDWRITE))
    cells = {("A", c): Baseline("A", c, (100.0, 101.0)) for c in CELLS}
    cells |= {("B", c): Baseline("B", c, (200.0, 202.0) if c == doubled else (100.0, 101.0)) for c in CELLS}
    writes = profile.accesses[Op.WRITE]["4K"]
    share = {"meyer-random": 1.0, "meyer-sequential": 0.0}.get(model, profile.random[Op.WRITE])
    part = writes * share / profile.n_accesses
    expected = 100 / (1 - part / 2) if model in ("time", "waiting") else 100 * (1 + part)
    assert predictor(model).predict(profile, Baselines(cells, "equal")).of("B").relative == pytest.approx(expected)

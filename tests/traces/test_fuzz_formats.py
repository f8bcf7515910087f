"""A little of the fuzzing on every run, more among the slow tests; ``fuzz_formats.py`` alone does a million."""

from pathlib import Path

import pytest
from fuzz_formats import families, fuzz

FAMILIES = families()


@pytest.mark.parametrize("name", FAMILIES)
def test_some_damaged_traces(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an input that fails is written there
    target, _ = fuzz(FAMILIES[name], n=150, seconds=10, seed=2017)
    assert target.n_read > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_many_damaged_traces(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target, slowest = fuzz(FAMILIES[name], n=100_000, seconds=60, seed=1)
    assert target.n_read > 100
    assert slowest < 10

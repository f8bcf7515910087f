"""A little of the fuzzing on every run, more among the slow tests; ``fuzz_formats.py`` alone does a million."""

import time
from pathlib import Path

import pytest
from fuzz_formats import Target, families, fuzz

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


def test_the_slowest_input_is_measured_in_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that only waits, as for a processor of a busy machine, is not slow."""

    def wait(target: Target, content: bytes) -> None:
        target.n_read += 1
        time.sleep(0.5)

    monkeypatch.setattr(Target, "__call__", wait)
    target, slowest = fuzz(FAMILIES["msr"], n=1, seconds=10, seed=1)
    assert target.n_read == 1
    assert slowest < 0.25

"""A report predicts from the samples as they are now: what `map` said of fewer samples is not shown as today's."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from example_run import RUN_ID, example_profile, example_run, example_samples

from cephfit.cli.reports.report_command import command
from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.results import open_baselines
from cephfit.results.report.report_build import read_findings, report_of
from cephfit.results.store.sample_store import Store

GROUPS = example_samples()


def mapped(place: Path, n_groups: int, *, model: str = "time", confidence: float = 0.95) -> PredictionSet:
    """A store in which `map` spoke after so many fio runs."""
    with Store.open(place, create=True) as store:
        store.add_run(example_run())
        for group in GROUPS[:n_groups]:
            store.add_samples(RUN_ID, group, fio_json=None)
        stored = predictor(model, confidence=confidence).predict(example_profile(), open_baselines(place))
        store.put_document(RUN_ID, "profile", example_profile().to_json())
        store.put_document(RUN_ID, "predictions", stored.to_json())
    return stored


def measure_the_rest(place: Path, n_groups: int) -> None:
    with Store.open(place) as store:
        for group in GROUPS[n_groups:]:
            store.add_samples(RUN_ID, group, fio_json=None)


def recalculated(profile: Profile, baselines: Baselines, stored: PredictionSet | None) -> PredictionSet:
    assert stored is not None
    return predictor(stored.model, confidence=stored.confidence).predict(profile, baselines)


@pytest.mark.parametrize(("model", "confidence"), [("time", 0.95), ("meyer", 0.99)])
def test_samples_that_came_after_map_count(tmp_path: Path, model: str, confidence: float) -> None:
    place, half = tmp_path / "r.sqlite", len(GROUPS) // 2 + 3
    stored = mapped(place, half, model=model, confidence=confidence)
    measure_the_rest(place, half)
    now = predictor(model, confidence=confidence, with_error=True).predict(
        example_profile(), open_baselines(place)
    )
    assert [p.relative for p in now.predictions] != [p.relative for p in stored.predictions]

    page = tmp_path / "report.md"
    result = CliRunner().invoke(command, ["--store", str(place), "-o", str(page)], catch_exceptions=False)
    best = now.of(now.best)
    assert f"predicted to be {best.relative / 100:.2f} times as fast" in result.output
    shown = re.search(r"interval ([\d.,]+) to ([\d.,]+)\)", result.output)
    assert shown is not None
    assert [float(end.replace(",", "")) for end in shown.groups()] == pytest.approx(
        [best.low / 100, best.high / 100], rel=0.03
    )
    assert f"model `{model}`" in page.read_text()
    assert "recalculated from the current samples" in page.read_text()


def test_nothing_is_said_where_nothing_changed(tmp_path: Path) -> None:
    stored = mapped(tmp_path / "r.sqlite", len(GROUPS))
    with Store.open(tmp_path / "r.sqlite") as store:
        findings = read_findings(store, predict=recalculated)
    assert findings.predictions == stored
    assert not any("recalculated" in caveat for caveat in report_of(findings, made_ns=0).caveats)


def test_a_prediction_that_cannot_be_made_any_more_is_not_shown(tmp_path: Path) -> None:
    mapped(tmp_path / "r.sqlite", len(GROUPS))

    def refuse(profile: Profile, baselines: Baselines, stored: PredictionSet | None) -> PredictionSet:
        raise InputError("no baseline for 4K-read")

    with Store.open(tmp_path / "r.sqlite") as store:
        report = report_of(read_findings(store, predict=refuse), made_ns=0)
    assert report.ranking is None
    assert any(
        "from the current samples: no baseline for 4K-read." in sentence for sentence in report.answer.sentences
    )


def test_a_prediction_without_its_profile_is_not_shown(tmp_path: Path) -> None:
    with Store.open(tmp_path / "r.sqlite", create=True) as store:
        store.add_run(example_run())
        for group in GROUPS:
            store.add_samples(RUN_ID, group, fio_json=None)
        stored = predictor("time").predict(example_profile(), open_baselines(tmp_path / "r.sqlite"))
        store.put_document(RUN_ID, "predictions", stored.to_json())
        report = report_of(read_findings(store, predict=recalculated), made_ns=0)
    assert report.ranking is None
    assert "the workload's profile is not stored" in report.answer.sentences[0]

"""Values of the Python API as data frames, in a terminal and in a notebook."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

import cephfit

PROFILES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "profiles"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run of the bundled sweep on the simulated cluster."""
    path = tmp_path_factory.mktemp("store") / "sim.sqlite"
    cephfit.run_sweep("quick", target="sim", store=path)
    return path


def shown(value: object, *, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(value)
    return capture.get()


def test_a_profile_is_its_twenty_cells() -> None:
    frame = cephfit.read_profile(PROFILES / "pgbench.json").to_frame()
    assert list(frame.columns) == ["size", "pattern", "accesses", "share"]
    assert len(frame) == 20
    assert frame["share"].sum() == pytest.approx(1)
    assert frame.attrs["title"] == "Workload pgbench: 2,082,155 accesses"


def test_predictions_say_in_every_form_that_they_are_simulated(store: Path) -> None:
    predictions = cephfit.predict(cephfit.read_profile(PROFILES / "pgbench.json"), cephfit.read_baselines(store))
    frame = predictions.to_frame()
    assert list(frame.columns) == ["configuration", "relative", "low", "high", "verdict"]
    assert frame["configuration"].iloc[0] == predictions.best == "ssd"
    assert frame.set_index("configuration").loc["A", "verdict"] == "default"
    for said in (shown(predictions), predictions._repr_html_(), " ".join(frame.attrs["notes"])):
        assert "SIMULATED" in said
    assert "<td" in predictions._repr_html_()


def test_runs_and_samples_of_a_store(store: Path) -> None:
    with cephfit.open_store(store) as opened:
        runs = opened.runs()
        frame = runs.to_frame()
        samples = opened.samples(runs[0]).to_frame()
        assert opened.profile() is None
        assert opened.predictions() is None
        assert len(opened.workload_runs()) == 0
    assert len(runs) == 1
    assert frame.loc[0, "run"] == runs[0].run_id
    assert str(frame.loc[0, "created"].tz) == "UTC"
    assert len(samples) == 420  # 7 configurations, 30 cells and loads, 2 repeats
    assert set(samples["state"]) == {"ok"}
    assert runs[0].run_id in shown(runs, width=120)


def test_a_long_table_is_shown_in_part_and_given_whole(store: Path) -> None:
    baselines = cephfit.read_baselines(store)
    assert len(baselines.to_frame()) == 280
    assert "240 more rows; .to_frame() has all of them" in shown(baselines)
    assert baselines._repr_html_().count("<tr>") == 41  # with the names of the columns


def test_what_a_name_contains_is_text_in_a_notebook_and_in_a_terminal() -> None:
    profile = cephfit.read_profile(PROFILES / "pgbench.json")
    named = cephfit.Profile("<b>x</b> [red]", profile.accesses, profile.random)
    assert "&lt;b&gt;x&lt;/b&gt;" in named._repr_html_()
    assert "<b>x</b> [red]" in shown(named)


def test_without_pandas_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    profile = cephfit.read_profile(PROFILES / "pgbench.json")
    with pytest.raises(cephfit.HostError, match="pandas is not installed") as error:
        profile.to_frame()
    assert "pip install 'cephfit[pandas]'" in error.value.remedy
    assert "4K" in shown(profile)


def test_the_summary_of_all_models_fits_a_terminal(store: Path) -> None:
    accuracy = cephfit.assess(
        store,
        measured={"A": [100.0, 101.0], "ssd": [598.0, 615.0], "striped": [103.0, 104.0]},
        profiles=cephfit.read_profile(PROFILES / "pgbench.json"),
    )
    said = shown(accuracy.summary(), width=80)
    for word in ("meyer-sequential", "median", "spearman", "regret", "coverage"):
        assert word in said
    assert accuracy.summary().of("time").n_configurations == 2
    names = "waiting, time, meyer, meyer-random, meyer-sequential, learned"
    trivial = "always the default, best on average over cells, nearest single cell"
    assert repr(accuracy) == f"<Accuracy of {names}, {trivial}: 9 predictions>"


def test_print_shows_the_table_with_its_caveats(store: Path) -> None:
    predictions = cephfit.predict(cephfit.read_profile("example:pgbench"), cephfit.read_baselines(store))
    text = str(predictions)
    assert text.startswith("Workload pgbench, model ") and "SIMULATED" in text and "CellReason" not in text


def test_arguments_of_another_type_are_refused_by_name(store: Path) -> None:
    profile, baselines = cephfit.read_profile("example:pgbench"), cephfit.read_baselines(store)
    with pytest.raises(cephfit.InputError, match="profile: a Baselines is not a Profile"):
        cephfit.predict(baselines, profile)  # type: ignore[arg-type]
    with pytest.raises(cephfit.InputError, match="baselines: a str is not a Baselines"):
        cephfit.predict(profile, str(store))  # type: ignore[arg-type]
    with pytest.raises(cephfit.InputError, match="choose from: ssd"):
        cephfit.predict(profile, baselines).of("none")

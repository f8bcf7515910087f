"""The public names and their arguments are stable, and importing them loads nothing heavy."""

import inspect
import subprocess
import sys

import pytest

import cephfit

NAMES = {
    *("Accuracy", "AccuracySummary", "Baselines", "ManyPredictions", "Prediction", "PredictionSet", "Profile"),
    *("Run", "Runs", "Samples", "Store", "SupplySet", "Verdict", "WorkloadRuns"),
    *("CephfitError", "ClusterError", "HostError", "InputError", "StoreError"),
    *("assess", "open_store", "predict", "predict_many", "profile_trace"),
    *("read_baselines", "read_profile", "run_sweep", "supply"),
    "__version__",
}
PARAMETERS = {
    "open_store": "url_or_path",
    "read_profile": "path",
    "profile_trace": "paths, *, name, format, action, disks, parts, describe, threshold, assume_op, columns, "
    "blkparse_format, scheduler, waiting, progress",
    "read_baselines": "store_or_csv, run, *, load",
    "predict": "profile, baselines, *, model, confidence",
    "supply": "profile, baselines, *, confidence",
    "predict_many": "profiles, baselines, *, model, confidence",
    "assess": "store, runs, *, measured, metric, profiles, models, confidence, leave_out",
    "run_sweep": "sweep, target, store, *, profile, model, new, keep, apply, health_limit_seconds, cluster, "
    "progress",
}
"""Those before ``*`` may be given by position or by name, those after it only by name."""
METHODS = {
    "SupplySet": {
        *("profile", "baselines", "demand", "supplies", "confidence", "default", "notes"),
        *("fit", "for_machines", "headroom_of", "of", "texts_of", "to_json"),
    },
    "Store": {"baselines", "close", "name", "predictions", "profile", "run", "runs", "samples", "workload_runs"},
    "Accuracy": {"models", "notes", "of", "summary", "verified"},
    "AccuracySummary": {"of"},
    "ManyPredictions": {
        *(
            "profiles",
            "configurations",
            "relative",
            "low",
            "high",
            "best_of",
            "models",
            "baselines",
            "confidence",
            "notes",
        ),
        "best",
    },
}
SHOWN = (
    *("Accuracy", "AccuracySummary", "Baselines", "ManyPredictions", "PredictionSet", "Profile", "Run", "Runs"),
    *("Samples", "Store", "SupplySet"),
)


def test_the_public_names_are_these_and_all_are_there() -> None:
    assert set(cephfit.__all__) == NAMES
    assert len(cephfit.__all__) == len(NAMES)
    for name in NAMES:
        assert getattr(cephfit, name) is not None
    assert set(dir(cephfit)) >= NAMES


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'open_stores'"):
        _ = cephfit.open_stores


@pytest.mark.parametrize("name", PARAMETERS)
def test_arguments_keep_their_names_and_kinds(name: str) -> None:
    words: list[str] = []
    for parameter in inspect.signature(getattr(cephfit, name)).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        else:
            assert parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        words.append(parameter.name)
    assert ", ".join(words) == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_functions_state_their_types_arguments_and_errors(name: str) -> None:
    function = getattr(cephfit, name)
    signature = inspect.signature(function)
    doc = inspect.getdoc(function) or ""
    assert signature.return_annotation is not signature.empty
    assert "Raises:" in doc
    for parameter in signature.parameters.values():
        assert parameter.annotation is not parameter.empty
        assert f"{parameter.name}:" in doc


@pytest.mark.parametrize("name", METHODS)
def test_public_values_keep_their_methods(name: str) -> None:
    public = getattr(cephfit, name)
    own = {n for n in vars(public) if not n.startswith("_")} | set(public.__annotations__)
    assert own | ({"name"} if name == "Store" else set()) == METHODS[name]


@pytest.mark.parametrize("name", SHOWN)
def test_values_have_a_frame_and_can_be_shown(name: str) -> None:
    for method in ("to_frame", "_repr_html_", "__rich_console__"):
        assert callable(getattr(getattr(cephfit, name), method))


HEAVY = ("numpy", "scipy", "numba", "pandas", "sqlalchemy", "jinja2", "openstack", "rados")


@pytest.mark.parametrize(
    ("begins", "light"),
    [("import cephfit", (*HEAVY, "click", "rich")), ("from cephfit.cli.main import main; main()", HEAVY)],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(begins: str, light: tuple[str, ...]) -> None:
    """`benchmarks/command_line.py` has the seconds."""
    at_exit = f"lambda: print('loaded', *({set(light)} & sys.modules.keys()))"
    script = f"import atexit, sys; atexit.register({at_exit}); {begins}"
    run = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "loaded"

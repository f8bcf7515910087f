"""Hand-written descriptions: a wrong form gives an error with its place, never a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_trace_views import run
from trace_maker import mixed_workload, write

from cephfit.core.errors import InputError
from cephfit.traces import profile_files
from cephfit.traces.description.stored_descriptions import check_description

WRONG: list[tuple[str, Any, str]] = [
    ("histograms", [], "description.histograms: [] is not an object"),
    ("histograms", {"size": {"all": {"limits": [1], "counts": [1]}}}, "one more count than limits"),
    ("histograms", {"size": {"all": {"counts": [1, 2]}}}, "histograms.size.all: 'limits' is missing"),
    (
        "histograms",
        {"size": {"all": {"limits": [1, 2], "counts": [1, 2, 0]}, "read": {"limits": [1], "counts": [1, 2]}}},
        "histograms.size.read: its limits differ",
    ),
    ("iops", "many", "description.iops: 'many' is not a number"),
    ("lacks", "time", "description.lacks: 'time' is not a list"),
    ("sources", [7], "description.sources[0]: 7 is not an object"),
    ("behaviour", {}, "description.behaviour: "),
]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    trace = write(tmp_path_factory.mktemp("written") / "t.blktrace.0", mixed_workload(300))
    return profile_files([trace], full=True).to_json()


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_wrong_form_is_reported_with_its_place(
    document: dict[str, Any], tmp_path: Path, name: str, value: Any, message: str
) -> None:
    changed = document | {"description": document["description"] | {name: value}}
    (tmp_path / "p.json").write_text(json.dumps(changed))
    done = run("show", tmp_path / "p.json", check=False)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


def test_a_profile_needs_no_description(document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(document | {"description": {}}))
    for view in (("show",), ("compare", tmp_path / "p.json"), ("jobs", "--pace", "full-speed")):
        run(view[0], tmp_path / "p.json", *view[1:])


def test_the_share_of_reads_on_a_page_follows_from_the_accesses(tmp_path: Path) -> None:
    """The description of a hand-written profile may be empty; the page said 0.0 % reads."""
    pytest.importorskip("matplotlib")
    accesses = {"read": {"4K": 3}, "write": {"4K": 1}}
    minimal = {"schema_version": 2, "accesses": accesses, "random": {"read": 1, "write": 0}}
    (tmp_path / "p.json").write_text(json.dumps(minimal))
    run("plot", tmp_path / "p.json", "-o", tmp_path / "p.html")
    assert "4 accesses, 75.0 % reads" in (tmp_path / "p.html").read_text()


def test_views_do_without_what_is_not_required(document: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    changed = json.loads(json.dumps(document))
    del changed["description"]["histograms"]["size"]["all"]
    del changed["description"]["behaviour"]["over_time"]
    del changed["description"]["behaviour"]["footprint"]["exact"]
    (tmp_path / "p.json").write_text(json.dumps(changed))
    assert "footprint: " in run("show", tmp_path / "p.json").stdout
    drawn = json.loads(run("plot", tmp_path / "p.json", "-o", tmp_path / "p.svg", "--json").stdout)["pictures"]
    assert not {"size", "iops", "bytes"} & set(drawn)
    assert {"distance", "lbn", "sensitivity"} <= set(drawn)


def test_descriptions_of_cephfit_have_the_form(document: dict[str, Any], tmp_path: Path) -> None:
    check_description(document["description"], where="p")
    (tmp_path / "t").write_text("1,R,4096,4096,1000\n")
    check_description(profile_files([tmp_path / "t"], full=True).description, where="p")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["all", "limits", "n", "x"]), inner),
        max_leaves=5,
    ),
    st.data(),
)
def test_any_value_anywhere_is_accepted_or_refused(
    document: dict[str, Any], value: Any, data: st.DataObject
) -> None:
    changed = json.loads(json.dumps(document["description"]))
    part: Any = changed
    while True:
        name = data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else list(range(len(part)))))
        if not (isinstance(part[name], dict | list) and part[name]) or data.draw(st.booleans()):
            break
        part = part[name]
    part[name] = value
    try:
        check_description(changed, where="p")
    except InputError as error:
        assert error.where is not None and error.where.startswith("p: ")

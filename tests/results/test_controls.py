"""The noise floor as measured: the default under another name."""

import pytest

from cephfit.core.protocols import Applied
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import Cell
from cephfit.results.report.run_notes import controls_of, names_of_controls


def applied(name: str, **settings: object) -> tuple[int, Applied]:
    return 0, Applied(name, True, (), settings)


def test_a_configuration_without_settings_is_a_control():
    assert names_of_controls([applied("A"), applied("again"), applied("ssd", rule={"p": "ssd"})]) == ("again",)


def test_the_default_is_held_against_itself_cell_by_cell():
    cells = {
        ("A", Cell.parse("4K-read")): (100.0, 100.0),
        ("again", Cell.parse("4K-read")): (110.0, 90.0),
        ("A", Cell.parse("1M-write")): (50.0, 50.0),
        ("again", Cell.parse("1M-write")): (55.0, 55.0),
    }
    baselines = Baselines({key: Baseline(*key, iops) for key, iops in cells.items()}, source="test")
    controls = controls_of([applied("A"), applied("again")], baselines, None)
    assert controls is not None
    assert controls.names == ("again",)
    assert controls.points is None
    assert controls.cell_points["4K-read"] == pytest.approx(0), "as the heat map has it"
    assert controls.worst_cell == ("1M-write", pytest.approx(10.0))


def test_the_default_is_held_against_itself_within_the_rounds_of_both():
    """The second round was an hour in which everything was twice as fast."""
    cell = Cell.parse("4K-read")
    cells = {
        ("A", cell): Baseline("A", cell, (100.0, 200.0)),
        ("again", cell): Baseline("again", cell, (202.0,), rounds=(1,)),
    }
    controls = controls_of([applied("A"), applied("again")], Baselines(cells, source="test"), None)
    assert controls is not None
    assert controls.cell_points["4K-read"] == pytest.approx(1.0), "and not 43 points"


def test_a_run_without_a_control_has_no_floor():
    assert controls_of([applied("A"), applied("ssd", rule="ssd")], Baselines({}, source="test"), None) is None

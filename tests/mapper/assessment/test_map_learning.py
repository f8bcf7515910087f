"""`cephfit map --learn-from` and `--sensitivity`, on the evaluation in the repository."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit as command_line

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "data" / "evaluation-kept-volumes"
MAP = ("map", FOLDER / "profiles" / "boot.json", "--baselines", FOLDER / "baselines.csv")


def said(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(command_line, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


def answer(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(*MAP, "--json", *arguments))
    return found


def test_what_was_learned_stretches_gains_and_keeps_the_order() -> None:
    plain, learned = answer(), answer("--learn-from", FOLDER)
    assert (plain["model"], learned["model"]) == ("waiting", "learned")
    before, after = ([p["configuration"] for p in found["predictions"]] for found in (plain, learned))
    assert before == after
    assert learned["predictions"][0]["relative"] > 1.1 * plain["predictions"][0]["relative"]


def test_nothing_can_be_learned_for_meyer_and_from_no_folder() -> None:
    assert "add up time, not meyer" in said(*MAP, "--model", "meyer", "--learn-from", FOLDER, code=2)
    assert "--save" in said(*MAP, "--save", "--learn-from", FOLDER, code=2)


@pytest.mark.slow
def test_the_sensitivity_says_in_how_many_variations_the_best_stays() -> None:
    text = said(*MAP, "--sensitivity")
    assert "The best stays ssd in " in text
    assert "variations change no prediction by 5 %" in text
    assert "no phases" in text

"""`cephfit place` on runs of an optimiser, and with nan and infinite numbers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cephfit.cli.check import verify_command
from cephfit.cli.fleets import place_command
from cephfit.cli.main import cephfit, main
from cephfit.cli.predict import map_command as map_command
from cephfit.cli.sweep.sweep_commands import command as sweep
from cephfit.core.errors import InputError

SEARCH = """
schema_version: 1
name: tune
description: an optimiser that tries pools
design:
  kind: optimise
  trials: 4
  batch: 2
  seed: 3
  cell: 4K-randread
  factors:
    rule:
      pool: {crush_rule: [default, ssd]}
  settings:
    image: {object_size: [1M, 4M, 8M]}
measurement:
  {sizes: [4K], patterns: [randread], clients: 1, volume_size: 16M, repeats: 2,
   ramp_seconds: 0, run_seconds: 0.5, ioengine: libaio, iodepth: 1, direct: true, cache: warm, seed: 7}
"""
PROFILE = {
    "schema_version": 1,
    "name": "w",
    "accesses": {"read": {"4K": 1000}, "write": {}},
    "random": {"read": 1.0, "write": 0.0},
}
FIGURES = """configuration,size,pattern,client,run,iops
A,4K,randread,c,0,100
A,4K,randread,c,1,104
B,4K,randread,c,0,300
B,4K,randread,c,1,303
"""


def give(command: object, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))  # type: ignore[arg-type]


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(PROFILE))
    return str(path)


@pytest.fixture
def figures(tmp_path: Path) -> str:
    path = tmp_path / "figures.csv"
    path.write_text(FIGURES)
    return str(path)


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of an optimiser's run on the simulated cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "tune.yaml").write_text(SEARCH)
    store = tmp_path / "results.sqlite"
    result = give(sweep, "run", str(tmp_path / "tune.yaml"), "--target", "sim", "--store", str(store))
    assert result.exit_code == 0, result.output
    return store


def test_an_optimisers_trials_compete_and_can_be_verified(searched: Path, profile: str) -> None:
    mapped = json.loads(give(map_command.command, profile, "--baselines", str(searched), "--json").output)
    assert mapped["best"].startswith("trial-"), "on the simulated cluster the SSD rule is six times as fast"
    (placed,) = json.loads(give(place_command.command, profile, "--baselines", str(searched), "--json").output)[
        "placements"
    ]
    assert len(placed["candidates"]) == 5
    assert placed["pool"].startswith("trial-")

    sweep_file = str(searched.with_name("tune.yaml"))
    verified = give(
        verify_command.command,
        "--sweep",
        sweep_file,
        "--store",
        str(searched),
        "--target",
        "sim",
        "--workload",
        "pgbench",
    )
    assert isinstance(verified.exception, InputError)
    assert "a simulated cluster has no disks" in str(verified.exception), "the trial itself was found"


@pytest.mark.parametrize(
    "options", [("--at-least", "nan"), ("--at-least", "inf"), ("--confidence", "nan")], ids=" ".join
)
def test_nan_and_infinity_are_refused(profile: str, figures: str, options: tuple[str, str]) -> None:
    refused = give(place_command.command, profile, "--baselines", figures, *options, "--json")
    assert refused.exit_code == 2
    assert f"'{options[1]}' is not a number" in refused.output


@pytest.mark.parametrize(
    "command",
    ["sweep effects --confidence", "trace jobs p.json --seconds", "trace capture /dev/null -o t --seconds"],
)
def test_other_commands_refuse_nan_and_infinity(command: str) -> None:
    refused = give(cephfit, *command.split(), "nan")
    assert refused.exit_code == 2
    assert "'nan' is not a number" in refused.output


def test_the_level_is_not_rounded_up_to_certainty(profile: str, figures: str) -> None:
    said = give(place_command.command, profile, "--baselines", figures, "--confidence", "0.9999").output
    assert said.splitlines()[-1].startswith("99.99 % intervals, joint over all configurations")


def test_omitted_configurations_are_reported(profile: str, figures: str) -> None:
    with Path(figures).open("a") as file:
        file.write("C,4K,read,c,0,1000\n")
    said = give(place_command.command, profile, "--baselines", figures).output
    assert "Note: configuration C is omitted: no baseline for 4K-randread" in said


def test_the_earlier_name_of_the_option_placement_still_works(searched: Path, profile: str) -> None:
    """``--placement`` was ``--lies`` once; scripts may still have that."""
    now, before = (
        give(place_command.command, profile, "--baselines", str(searched), option, "A=hdd:2").output
        for option in ("--placement", "--lies")
    )
    assert "2 x hdd" in now
    assert now == before
    assert "--lies" not in give(place_command.command, "--help").output


@pytest.mark.parametrize(("wrong", "suggested"), [("--lie", "--price"), ("--placemen", "--placement")])
def test_an_earlier_name_of_an_option_is_not_suggested(
    capsys: pytest.CaptureFixture[str], wrong: str, suggested: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["place", wrong, "x"])
    said = capsys.readouterr().err
    assert suggested in said
    assert "--lies" not in said


def test_the_demand_is_that_of_all_machines(profile: str, figures: str) -> None:
    Path(profile).write_text(json.dumps({**PROFILE, "description": {"duration_seconds": 100}}))
    asked = sum(n for counts in PROFILE["accesses"].values() for n in counts.values()) / 100
    found = {}
    for count in (1, 8):
        words = (f"{profile}:{count}", "--baselines", figures)
        (found[count],) = json.loads(give(place_command.command, *words, "--json").output)["placements"]
        assert found[count]["machines"] == count
        assert found[count]["demand"]["accesses_per_s"] == pytest.approx(count * asked)
    for one, eight in zip(found[1]["supply"], found[8]["supply"], strict=True):
        assert eight["most"] == one["most"]
        assert eight["headroom"]["value"] == pytest.approx(one["headroom"]["value"] / 8)
    said = give(place_command.command, f"{profile}:8", "--baselines", figures).output
    assert "8 machines: " in said
    assert f"mean 8 x {asked:.1f}/s" in said


def test_machines_are_not_placed_in_a_cheap_pool_that_cannot_serve_them(profile: str, figures: str) -> None:
    """A serves about 100/s and B 300/s; the workload asks for 10/s and hardly waits, so both are as good."""
    columns = ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"]
    demands = {"columns": columns, "rows": [["randread", 4096.0, True, 1.0, None, 1000, 0.5]]}
    traced = {"schema_version": 2, "demands": demands, "idle_seconds": 99.5}
    Path(profile).write_text(json.dumps({**PROFILE, **traced, "description": {"duration_seconds": 100}}))
    layout = ("--placement", "A=hdd:2", "--placement", "B=ssd:2", "--price", "hdd=1", "--price", "ssd=8")
    chosen = {}
    for count in (2, 20):
        words = (f"{profile}:{count}", "--baselines", figures, *layout, "--json")
        (found,) = json.loads(give(place_command.command, *words).output)["placements"]
        chosen[count] = found["pool"], found["fit"]["verdict"]
        assert any("of the time that they take on A" in note for note in found["notes"])
    assert chosen == {2: ("A", "fits"), 20: ("B", "fits")}


def test_no_pool_that_certainly_reaches_the_floor_is_an_error(profile: str, figures: str) -> None:
    words = (profile, "--baselines", figures, "--at-least", "200000")
    refused = give(place_command.command, *words)
    assert isinstance(refused.exception, InputError)
    assert "no pool certainly reaches 200000 for w" in str(refused.exception)
    as_json = give(place_command.command, *words, "--json")
    assert as_json.exit_code == 2
    assert json.loads(as_json.output)["placements"][0]["pool"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("{p}:1", "{p}:2"), "several workloads have the name w"),
        (("{p}:100000000000000000000",), "are too many"),
        (("{p}", "--price", "hdd=1", "--price", "hdd=9"), "hdd: several values are given"),
        (("{p}", "--space", "A=1T", "--space", "A=2T", "--volume", "1G"), "A: several values are given"),
    ],
)
def test_ambiguous_input_is_refused(profile: str, figures: str, words: tuple[str, ...], message: str) -> None:
    refused = give(place_command.command, *(w.format(p=profile) for w in words), "--baselines", figures)
    assert isinstance(refused.exception, InputError)
    assert message in str(refused.exception)


def test_options_of_the_ranking_are_refused_with_next(profile: str, figures: str) -> None:
    for words in (("--sensitivity",), ("--commands",), ("--objective", "cost"), ("--price", "hdd=1")):
        refused = give(map_command.command, profile, "--baselines", figures, "--next", *words)
        assert refused.exit_code == 2
        assert f"{words[0]} has no effect" in refused.output


def test_a_price_of_nothing_is_refused(profile: str, figures: str) -> None:
    layouts = ("--placement", "A=hdd:2", "--placement", "B=ssd:2")
    words = (profile, "--baselines", figures, "--objective", "cost", *layouts)
    refused = give(map_command.command, *words, "--price", "hdd=0", "--price", "ssd=4")
    assert isinstance(refused.exception, InputError)
    assert "would cost nothing" in str(refused.exception)
    assert "without --price, a byte costs 1" in give(map_command.command, *words).output

"""The commands of docs/how-to-pools.md, and wrong inputs of `balance`, joint `place` and objectives."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "how-to-pools.md").read_text()
SWEEP, IMAGES = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^cephfit (.*)$", DOCUMENT, re.MULTILINE)
PRICES = ("--price", "hdd=1", "--price", "ssd=4")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cephfit, list(arguments))


def document(*arguments: str) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output + str(result.exception)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, its measured pools, and two workloads that state a duration."""
    folder = tmp_path_factory.mktemp("pools")
    (folder / "pools.yaml").write_text(SWEEP)
    (folder / "images.yaml").write_text(IMAGES)
    for name, seconds in (("pgbench", 360_000), ("postmark", 360_000)):
        profile = json.loads((ROOT / "cephfit" / "example_profiles" / f"{name}.json").read_text())
        profile["description"]["duration_seconds"] = seconds
        (folder / f"{name}.json").write_text(json.dumps(profile))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        assert call(*shlex.split(COMMANDS[0])).exit_code == 0
    return folder


@pytest.fixture(autouse=True)
def within(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_the_page_begins_with_the_sweep_and_has_four_more_commands() -> None:
    assert COMMANDS[0].startswith("sweep run pools.yaml --target sim")
    assert [c.split()[0] for c in COMMANDS[1:]] == ["balance", "map", "place", "place"]


@pytest.mark.parametrize("line", COMMANDS[1:], ids=lambda line: line.split()[0])
def test_the_commands_of_the_page_run(line: str) -> None:
    result = call(*shlex.split(line))
    assert result.exit_code == 0, result.output + str(result.exception)


def test_the_answers_of_the_page() -> None:
    assert call(*shlex.split(COMMANDS[1])).output.startswith("Best for 75 % pgbench, 25 % postmark: ssd")
    assert re.match(r"Pareto front by throughput, p99, cost: .*ssd", call(*shlex.split(COMMANDS[2])).output)
    assert call(*shlex.split(COMMANDS[3])).output.startswith("All 28 machines of 2 workloads fit, in A: cost 2800")
    commands = call(*shlex.split(COMMANDS[4])).output
    assert (
        "openstack image list --property workload=database -f value -c ID | "
        "xargs -r -n 1 openstack image set --property cinder_img_volume_type=fast"
    ) in commands
    assert "xargs -r -n 1 openstack image unset --property cinder_img_volume_type" in commands


def test_the_cheap_pool_is_chosen_where_it_is_as_good() -> None:
    """The default states no layout; the run recorded that of the cluster."""
    arguments = ("place", "example:pgbench", "--baselines", "pools.sqlite", *PRICES, "--at-least", "90")
    (found,) = document(*arguments)["placements"]
    assert (found["pool"], found["bytes_on_disks_per_byte"]) == ("A", {"hdd": 2.0})


def test_an_unknown_layout_is_asked_for_where_the_cost_decides(tmp_path: Path) -> None:
    rows = [
        f"{name},4K,randread,c,{run},{iops + run}" for name, iops in (("A", 100), ("B", 300)) for run in (0, 1)
    ]
    (tmp_path / "rates.csv").write_text("configuration,size,pattern,client,run,iops\n" + "\n".join(rows))
    one = {"schema_version": 1, "accesses": {"read": {"4K": 9}, "write": {}}, "random": {"read": 1, "write": 0}}
    (tmp_path / "w.json").write_text(json.dumps(one))
    arguments = ("place", f"{tmp_path}/w.json", "--baselines", f"{tmp_path}/rates.csv", "--at-least", "90")
    given = ("--placement", "B=ssd:2", *PRICES[:2], "--price", "ssd=4")
    refused = call(*arguments, *("--placement", "B=ssd:2", "--price", "ssd=4"))
    assert isinstance(refused.exception, InputError)
    assert "class and copies of A are not known" in str(refused.exception)
    assert "--placement A=CLASS:COPIES" in str(refused.exception)
    assert document(*arguments, "--placement", "A=hdd:2", *given)["placements"][0]["pool"] == "A"


def test_the_budget_buys_the_fast_pool_for_the_workload_that_gains_most() -> None:
    arguments = ("place", "pgbench.json:1", "postmark.json:1", "--baselines", "pools.sqlite", *PRICES)
    limits = ("--volume", "100GiB", "--budget")
    both, one, none = (document(*arguments, *limits, budget)["joint"] for budget in ("1600", "1000", "400"))
    pools = [[next(iter(a["pools"])) for a in found["assignments"]] for found in (both, one, none)]
    # From counts it is not certain that postmark gains more on ssd than on mixed, which costs less.
    assert pools == [["ssd", "mixed"], ["ssd", "A"], ["A", "A"]], "pgbench gains 6.5 times, postmark 5.5 times"
    assert (both["cost"], one["cost"], none["cost"]) == (1300, 1000, 400)
    refused = call(*arguments, *limits, "300")
    assert "budget is short: the closest assignment needs 400 of 300" in str(refused.exception)


def test_time_is_shared_by_the_pools_of_a_device_class() -> None:
    """``mixed`` and ``A`` are both on hdd: more of both does not fit than of one."""
    arguments = ("place", "pgbench.json:40", "--baselines", "pools.sqlite", "--at-least", "90", *PRICES)
    found = document(*arguments, "--fill", "80%")["joint"]
    assert [*found["pools"]] == ["ssd"], "forty machines take 2.3 times the time of hdd"
    share = found["pools"]["ssd"]["time_share"]
    assert share["low"] <= share["value"] <= share["high"] < 0.8
    refused = call(*arguments[:1], "pgbench.json:400", *arguments[2:], "--fill", "80%")
    assert "time of device class" in str(refused.exception)


def test_the_time_that_is_taken_follows_from_the_supply_that_map_shows() -> None:
    arguments = ("pgbench.json:1", "--baselines", "pools.sqlite", "--fill", "80%")
    (pool,) = (found := document("place", *arguments)["joint"]["pools"])
    mapped = document("map", "pgbench.json", "--baselines", "pools.sqlite", "--no-save")
    (served,) = (s["most"] for s in mapped["supply"] if s["configuration"] == pool)
    asked, share = mapped["demand"]["accesses_per_s"], found[pool]["time_share"]
    assert share["value"] == pytest.approx(asked / served["value"])
    assert (share["low"], share["high"]) == pytest.approx((asked / served["high"], asked / served["low"]))


POOLS = ("--baselines", "pools.sqlite")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("balance", "example:pgbench:0", *POOLS), "'0' is not a weight"),
        (("balance", "example:pgbench:-1", *POOLS), "'-1' is not a weight"),
        (("balance", "example:pgbench", "example:pgbench:2", *POOLS), "several workloads have the name pgbench"),
        (("place", "example:pgbench:0", *POOLS), "'0' is not a number of virtual machines"),
        (("place", "example:pgbench:1.5", *POOLS), "'1.5' is not a number of virtual machines"),
        (("place", "example:pgbench", *POOLS, "--fill", "80%"), "does not state how long its trace lasted"),
        (("place", "pgbench.json", *POOLS, "--fill", "0"), "'0' is not a share of time"),
        (("place", "pgbench.json", *POOLS, "--fill", "120%"), "'120%' is not a share of time"),
        (("place", "pgbench.json", *POOLS, "--space", "sdd=1T", "--volume", "1G"), "there is no pool 'sdd'"),
        (("place", "pgbench.json", *POOLS, "--space", "ssd"), "'ssd' is not NAME=SIZE"),
        (("place", "pgbench.json", *POOLS, "--space", "ssd=1T"), "the size of a volume of pgbench is not known"),
        (("place", "pgbench.json", *POOLS, "--volume", "1G"), "need a capacity"),
        (("place", "pgbench.json", *POOLS, "--volume", "mail=1G", "--fill", "1%"), "there is no workload 'mail'"),
        (
            ("place", "pgbench.json", *POOLS, "--budget", "9", "--volume", "1G", "--price", "hdd=1"),
            "a device class has no price",
        ),
        (
            ("place", "pgbench.json", *POOLS, "--at-least", "9999", "--fill", "80%"),
            "no pool certainly reaches 9999",
        ),
        (("place", "pgbench.json", *POOLS, "--type", "sdd=fast"), "there is no pool 'sdd'"),
        (("place", "pgbench.json", "postmark.json", *POOLS, "--properties", "images.yaml"), "volume type of pool"),
        (("place", "pgbench.json", *POOLS, "--properties", "images.yaml"), "postmark"),
        (
            ("map", "pgbench.json", *POOLS, "--objective", "cost", "--price", "hdd=1"),
            "a device class has no price",
        ),
        (
            ("map", "pgbench.json", *POOLS, "--objective", "p99", "--reads-matter", "3"),
            "--reads-matter weighs times",
        ),
        (("map", "pgbench.json", *POOLS, "--price", "hdd=1"), "need --objective cost"),
        (("map", "pgbench.json", *POOLS, "--reads-matter", "1e9"), "not a weight of reads"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_wrong_inputs_are_refused_with_a_reason(arguments: tuple[str, ...], words: str) -> None:
    result = call(*arguments)
    assert result.exit_code != 0
    assert words in result.output + str(result.exception)
    assert isinstance(result.exception, InputError | SystemExit)


def test_a_csv_file_has_no_percentiles() -> None:
    examples = ROOT / "docs" / "examples"
    arguments = ("map", str(examples / "half-and-half.json"), "--baselines", str(examples / "ranks-differ.csv"))
    refused = call(*arguments, "--objective", "p99")
    assert "no percentiles of latency" in str(refused.exception)
    found = document(*arguments, "--objective", "latency")
    assert "Little's law" in " ".join(found["objectives"][0]["notes"])
    relative = {p["configuration"]: p["relative"] for p in found["objectives"][0]["configurations"]}
    usual = {p["configuration"]: p["relative"] for p in found["predictions"]}
    assert relative == pytest.approx(usual, rel=0.02), "mean latency at one depth is time per access"


def test_json_has_the_front_and_every_interval() -> None:
    found = document("map", "example:pgbench", *POOLS, "--objective", "latency", "--objective", "cost", *PRICES)
    assert found["best"] == "ssd"
    assert set(found["pareto_front"]) == {"A", "mixed", "ssd"}
    latency, cost = found["objectives"]
    assert (latency["unit"], cost["unit"]) == ("ms", "price of a byte")
    for row in latency["configurations"]:
        assert row["low"] <= row["relative"] <= row["high"]
        assert row["figure"]["low"] <= row["figure"]["value"] <= row["figure"]["high"]
    assert {row["configuration"]: row["figure"]["value"] for row in cost["configurations"]} == {
        "A": 2, "mixed": 5, "ssd": 8,
    }  # fmt: skip
    assert "objectives" not in document("map", "example:pgbench", *POOLS)

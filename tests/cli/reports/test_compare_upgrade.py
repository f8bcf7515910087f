"""`cephfit compare` across releases of Ceph, on stores with known differences."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from measured_releases import BASE_IOPS, measure_release, profile_text

from cephfit.cli.reports.compare_command import command as compare
from cephfit.core.errors import InputError

OLTP = {"read": [300, 0, 0, 0, 0], "write": [100, 0, 0, 0, 0]}
BACKUP = {"read": [0, 0, 100, 0, 0], "write": [0, 0, 0, 0, 0]}
SLOW_WRITES, FAST_READS = {"4K-randwrite": 0.6}, {"4K-randread": 1.5}


def of_time(factors: dict[str, float]) -> float:
    """Rate of OLTP relative to the base: 300 random reads and 100 random writes of 4K, one after the other."""
    reads, writes = BASE_IOPS["4K-randread"], BASE_IOPS["4K-randwrite"]
    before = 300 / reads + 100 / writes
    after = 300 / (reads * factors.get("4K-randread", 1)) + 100 / (writes * factors.get("4K-randwrite", 1))
    return before / after


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three releases on labs of their own: writes are slower on 18.2.7, reads are faster on 20.2.4."""
    folder = tmp_path_factory.mktemp("releases")
    store = folder / "s.sqlite"
    measure_release(store, "16.2.15", {}, target="lab:pacific", fsid="p", tps=(50.0, 51.0, 49.0))
    measure_release(store, "18.2.7", SLOW_WRITES, target="lab:reef", fsid="r", tps=(40.0, 41.0, 39.0))
    measure_release(store, "20.2.4", FAST_READS, target="lab:tentacle", fsid="t")
    profiles = folder / "profiles"
    profiles.mkdir()
    (profiles / "oltp.json").write_text(profile_text("oltp", OLTP, {"read": 1.0, "write": 1.0}))
    (profiles / "backup.json").write_text(profile_text("backup", BACKUP, {"read": 0.0, "write": 0.0}))
    return folder


def compared(folder: Path, *arguments: str) -> str:
    argv = ["--store", str(folder / "s.sqlite"), *arguments]
    return CliRunner().invoke(compare, argv, catch_exceptions=False).stdout


def targets(*names: str) -> list[str]:
    return [word for name in names for word in ("--target", f"lab:{name}")]


def test_the_first_line_says_which_release_serves_the_workload_better(folder: Path) -> None:
    profile = str(folder / "profiles" / "oltp.json")
    text = compared(folder, *targets("pacific", "reef", "tentacle"), "--profile", profile)
    first, *others = text.splitlines()
    assert first.startswith("oltp: Ceph 20.2.4 serves it best, 1.1"), first
    assert re.search(r"Ceph 18\.2\.7 0\.\d+ times \(0\.\d+ to 0\.\d+\), worse\.$", first), first
    assert "cells that moved on Ceph 18.2.7: 4K-randwrite" in others[0]
    assert "4K-randread" not in others[0]
    assert "cells that moved on Ceph 20.2.4: 4K-randread" in others[1]
    assert "shop, really run: Ceph 18.2.7 0.80 times" in text
    assert "osd_op_queue (wpq → mclock_scheduler → mclock_scheduler)" in text


def test_the_ratio_and_the_parts_of_the_cells_are_the_known_ones(folder: Path) -> None:
    profile = str(folder / "profiles" / "oltp.json")
    document = json.loads(compared(folder, *targets("pacific", "reef"), "--profile", profile, "--json"))
    served = next(w for w in document["workloads"] if w["configuration"] == "A")["there"][1]
    true_ratio = of_time(SLOW_WRITES)
    assert served["verdict"] == "worse"
    assert served["ratio"]["low"] < true_ratio < served["ratio"]["high"]
    (workload,) = document["upgrade"]["workloads"]
    _, parts = workload["cells"]
    by_cell = {part["cell"]: part for part in parts}
    assert parts[0]["cell"] == "4K-randwrite", "the largest effect comes first"
    assert sum(part["share"] for part in parts) == pytest.approx(1)
    # 100 writes at 200/s are 0.5 s of 0.8 s; at 120/s they take 0.333 s more.
    assert by_cell["4K-randwrite"]["share"] == pytest.approx(0.625, rel=0.03)
    assert by_cell["4K-randwrite"]["effect"] == pytest.approx(0.333 / 0.8, rel=0.1)
    assert sum(part["effect"] for part in parts) == pytest.approx(1 / served["ratio"]["mean"] - 1, rel=1e-6)
    assert by_cell["4K-randread"]["verdict"] == "not distinguishable"
    (real,) = document["upgrade"]["real_workloads"]
    assert real["ratio"] == pytest.approx(0.8) and real["low"] < 0.8 < real["high"]


def test_an_upgrade_without_effect_is_not_distinguishable_and_explains_nothing(tmp_path: Path) -> None:
    measure_release(tmp_path / "s.sqlite", "16.2.15", {})
    measure_release(tmp_path / "s.sqlite", "18.2.7", {}, began_ns=1)
    (tmp_path / "p.json").write_text(profile_text("oltp", OLTP, {"read": 1.0, "write": 1.0}))
    text = compared(tmp_path, "--profile", str(tmp_path / "p.json"))
    assert text.startswith("oltp: Ceph 18.2.7 is not distinguishable from Ceph 16.2.15: ")
    assert "none distinguishably" in text
    assert "may explain" not in text


def test_one_cluster_before_and_after_its_upgrade_needs_no_names_of_runs(tmp_path: Path) -> None:
    before = measure_release(tmp_path / "s.sqlite", "16.2.15", {}, target="ceph:prod")
    after = measure_release(
        tmp_path / "s.sqlite", "18.2.7", {"4K-randread": 1.5}, target="ceph:prod", began_ns=7200 * 10**9
    )
    for arguments in ((), ("--target", "ceph:prod")):
        document = json.loads(compared(tmp_path, *arguments, "--json"))
        assert [run["run"] for run in document["runs"]] == [before, after]
        assert document["upgrade"]["releases"] == ["Ceph 16.2.15", "Ceph 18.2.7"]
    untested = " ".join(document["upgrade"]["not_tested"])
    assert "more than an hour apart" in untested
    assert "different clusters" not in untested


def test_the_page_has_each_workload_its_cells_defaults_and_limits(folder: Path) -> None:
    page = folder / "upgrade.html"
    argv = [*targets("pacific", "reef"), "--profile", str(folder / "profiles"), "-o", str(page)]
    assert "oltp: Ceph 18.2.7 serves it worse than Ceph 16.2.15" in compared(folder, *argv)
    html = page.read_text()
    assert "Of 2 workloads, compared with Ceph 16.2.15: Ceph 18.2.7: 1 worse, 1 not distinguishable." in html
    assert "backup: Ceph 18.2.7 is not distinguishable from Ceph 16.2.15" in html
    sections = html.split("<h2")
    explained, other = next(part for part in sections if part.startswith(' id="defaults"')).split("<h3>")[1:]
    assert "osd_op_queue" in explained and "bluestore_rocksdb_options" in explained
    assert 'data-label="18.2.7">mclock_scheduler</td>' in explained, "on a phone its row is a card"
    assert "osd_max_scrubs" in other and "osd_max_scrubs" not in explained
    untested = next(part for part in sections if part.startswith(' id="untested"'))
    assert "different clusters" in untested and "osd_max_scrubs" in untested
    assert "max_sequential_bandwidth_ssd" not in html, "there is no SSD"
    assert "<script" not in html and "http://" not in html and "https://" not in html


def test_a_page_without_workloads_or_releases_is_refused(folder: Path, tmp_path: Path) -> None:
    page = str(tmp_path / "page.html")
    with pytest.raises(InputError, match="about workloads"):
        compared(folder, *targets("pacific", "reef"), "-o", page)
    measure_release(tmp_path / "s.sqlite", "18.2.7", {}, target="lab:a")
    measure_release(tmp_path / "s.sqlite", "18.2.7", {}, target="lab:b")
    with pytest.raises(InputError, match=r"not measure several releases of Ceph, but 18\.2\.7"):
        compared(tmp_path, "--profile", str(folder / "profiles"), "-o", page)
    assert not Path(page).exists()


def test_wrong_targets_and_configurations_are_refused_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(InputError, match="no run on lab:squid") as caught:
        compared(folder, *targets("pacific", "squid"))
    assert "lab:tentacle" in caught.value.remedy
    with pytest.raises(InputError, match="no run measured configuration fats") as caught:
        compared(folder, "--configuration", "fats")
    assert caught.value.remedy == "choose from A, fast"


def test_another_configuration_is_compared_alone(folder: Path) -> None:
    document = json.loads(compared(folder, *targets("pacific", "reef"), "--configuration", "fast", "--json"))
    assert {row["configuration"] for row in document["rows"]} == {"fast"}
    assert document["upgrade"]["configuration"] == "fast"

"""`cephfit shared-volume` with guests of the lab's real OpenStack, by the command line."""

import csv
import json
import signal
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, started, target_text, until
from openstack.connection import Connection

pytestmark = [*MARKS, pytest.mark.timeout(1500)]

SMALL = ("--clients", "2", "--volume-size", "64M", "--shared", "0", "--shared", "100")


@pytest.mark.core
@pytest.mark.takes(seconds=120)
def test_two_guests_share_a_volume_and_nothing_stays(cloud_user: Connection, tmp_path: Path) -> None:
    before, table = everything(cloud_user), tmp_path / "runs.csv"
    target = target_text(cloud_user, volume_type="hdd-multiattach")
    short = ("--repeats", "2", "--seconds", "2", "--json", "-o", str(table))
    done = cephfit("shared-volume", "--target", target, *SMALL, *short)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [(one["way"], one["shared_pct"], one["repeats"]) for one in document["costs"]] == [
        ("none", 0.0, 2),
        ("none", 100.0, 2),
    ]
    for one in document["costs"]:
        assert one["lock_share"] == 0
        assert one["relative"] is None
        # With one access in flight in each guest, the rate is 2 / mean time, except for pauses between accesses.
        assert one["rate"]["mean"] == pytest.approx(2000 / one["mean_ms"]["mean"], rel=0.15)
    assert any(
        sentence.startswith("exclusive-lock and its hand-over were not") for sentence in document["missing"]
    )
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {(row["shared_pct"], row["repeat"], row["client"]) for row in rows} == {
        (pct, repeat, client) for pct in ("0", "100") for repeat in "01" for client in ("c0", "c1")
    }
    assert all(int(row["accesses"]) > 0 for row in rows)
    until(lambda: everything(cloud_user) == before)


def test_a_plain_volume_type_is_refused_before_anything_is_created(cloud_user: Connection) -> None:
    before = everything(cloud_user)
    done = cephfit("shared-volume", "--target", target_text(cloud_user, volume_type="hdd"), *SMALL)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "the volume type hdd has no extra spec multiattach='<is> True'" in said
    assert "choose from: hdd-multiattach, ssd-multiattach" in said
    assert everything(cloud_user) == before


@pytest.mark.takes(seconds=90)
def test_what_a_killed_run_left_is_deleted_by_restore(cloud_user: Connection) -> None:
    before = everything(cloud_user)
    target = target_text(cloud_user, volume_type="hdd-multiattach")
    with started("shared-volume", "--target", target, *SMALL) as run:
        until(lambda: everything(cloud_user)["servers"] - before["servers"], seconds=240)
        run.send_signal(signal.SIGKILL)
    done = cephfit("restore", "--target", f"openstack:{cloud_user.config.name}")
    assert done.returncode == 0, done.stderr
    until(lambda: everything(cloud_user) == before)

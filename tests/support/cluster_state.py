"""Everything of a lab that a configuration may change, as one comparable value."""

import time
from pathlib import Path
from typing import Any

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.lab.cluster import Lab

QUEUE_VALUES = ("read_ahead_kb", "nr_requests", "scheduler", "max_sectors_kb", "rotational")


def state_of(lab: Lab) -> dict[str, Any]:
    """Config store, what every OSD runs with, pools, queues and limits of the OSD disks."""
    admin = RadosAdmin(lab.conf)
    try:
        return {
            "config dump": admin.command("config dump"),
            "osds": {osd: admin.tell(f"osd.{osd}", "config diff") for osd in lab.osd_ids()},
            "pools": admin.command("osd lspools"),
            "queues": {
                f"{disk.device}/{key}": (
                    Path("/sys/block") / Path(disk.device or "").name / "queue" / key
                ).read_text()
                for disk in lab.status().osd_disks
                for key in QUEUE_VALUES
            },
            "limits": [disk.limits for disk in lab.status().osd_disks],
        }
    finally:
        admin.close()


def await_clean(admin: RadosAdmin, *, seconds: float = 60.0) -> None:
    """Until every PG is active+clean, as after a pool was made."""
    until = time.monotonic() + seconds
    while True:
        placed = admin.command("status")["pgmap"]
        clean = sum(s["count"] for s in placed.get("pgs_by_state", ()) if s["state_name"] == "active+clean")
        if clean == placed["num_pgs"] == sum(p["pg_num"] for p in admin.command("osd dump")["pools"]):
            return
        assert time.monotonic() < until, f"{clean} of {placed['num_pgs']} PGs are clean after {seconds:.0f} s"
        time.sleep(0.2)

"""Everything of a lab that a configuration may change, as one comparable value."""

from pathlib import Path
from typing import Any

from cephfit.lab.cluster import Lab
from cephfit.sweep.admin.rados_admin import RadosAdmin

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

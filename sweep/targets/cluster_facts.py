"""What a report says about the Ceph cluster that a sweep ran on, and about the machine of the clients."""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from cephfit import __version__
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.daemons import running_daemons
from cephfit.sweep.cache_notes import MEMORY_TARGET
from cephfit.sweep.identity import CLUSTER
from cephfit.sweep.targets.beneath import memory_targets

_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_OSD_FACTS = (
    "osd_objectstore",
    "rotational",
    "bluestore_bdev_type",
    "bluestore_min_alloc_size",
    "bluestore_bdev_size",
)


def facts_of(admin: CephAdmin) -> dict[str, Any]:
    """Versions, machine, layout and clocks. JSON values only; no keys."""
    classes = {d.id: d.device_class for d in running_daemons(admin) if d.kind == "osd"}
    memory = memory_targets(admin, [int(osd) for osd in classes])
    return {
        "versions": {
            "cephfit": __version__,
            "ceph": admin.command("versions")["overall"],
            "fio": _version("fio", "--version"),
            "qemu": _version("qemu-storage-daemon", "--version"),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "machine": {
            "cpu_model": _cpu_model(),
            "n_cpus": os.cpu_count(),
            "memory_nbytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "clock_source": _CLOCK_SOURCE.read_text().strip() if _CLOCK_SOURCE.exists() else "unknown",
        },
        "osds": [
            {"id": osd["id"], "device_class": classes.get(str(osd["id"]), "")}
            | {key: osd[key] for key in _OSD_FACTS if key in osd}
            | ({MEMORY_TARGET: memory[osd["id"]]} if osd["id"] in memory else {})
            for osd in admin.command("osd metadata")
        ],
        "crush_rules": admin.command("osd crush rule ls"),
        CLUSTER: admin.command("status")["fsid"],
    }


def _version(*argv: str) -> str:
    try:
        said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "not installed"
    return said.splitlines()[0].strip() if said else "unknown"


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()

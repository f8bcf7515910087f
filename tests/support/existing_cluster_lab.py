"""The lab as an existing cluster: known are only a ceph.conf, a key, and a program that restarts OSDs."""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.lab.cluster import Lab
from cephfit.lab.devices.image_export import ImageDevices
from cephfit.targets.ceph.existing_cluster import ClusterChoice, ExistingClusterTarget

_RESTART = """#!{python}
import fcntl
import sys
from pathlib import Path
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons.ceph_daemons import Daemons
from cephfit.lab.daemons.ceph_programs import CephPrograms

folder = Path({folder!r})
name = "osd." + sys.argv[1]
# Whoever called may have been killed and called again: like systemd's, these restarts come one after the other.
turn = (folder / "restart.lock").open("w")
fcntl.flock(turn, fcntl.LOCK_EX)
daemons = Daemons(folder, folder / "ceph.conf", CephPrograms(folder, None))
daemons.stop_all([name])
daemons.start(name)
with (folder / "restarts.log").open("a") as log:
    print(name, sys.argv[2], file=log)
"""

POOL_DEFAULTS: Mapping[str, str | int] = {"crush_rule": "hdd", "pg_num": 16}


def restart_program(lab: Lab, folder: Path) -> Path:
    """Write a program that restarts one OSD of the lab, like the programs of real sites."""
    program = folder / "restart-osd"
    program.write_text(_RESTART.format(python=sys.executable, folder=str(lab.folder)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def restarted(lab: Lab) -> list[str]:
    """Return the OSDs that the program restarted, in order."""
    log = lab.folder / "restarts.log"
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def choice_of(lab: Lab, **more: Any) -> ClusterChoice:
    """Return the choice that opens the lab as an existing cluster."""
    said: dict[str, Any] = {"pool_defaults": POOL_DEFAULTS, "patience_seconds": 90.0}
    return ClusterChoice(conf=lab.conf, **(said | more))


def open_existing_cluster(
    lab: Lab, *, librbd: bool = True, for_change: bool = True, **more: Any
) -> ExistingClusterTarget:
    """Open the lab as an existing cluster."""
    return ExistingClusterTarget(
        "ceph:lab",
        choice_of(lab, **more),
        devices=ImageDevices(),
        librbd=librbd,
        for_change=for_change,
    )


def make_key(lab: Lab, name: str, caps: Mapping[str, str], folder: Path) -> Path:
    """Create a client of the cluster with these capabilities; return its keyring."""
    admin = RadosAdmin(lab.conf)
    try:
        words = [word for pair in caps.items() for word in pair]
        admin.command("auth rm", entity=f"client.{name}")
        made = admin.command("auth get-or-create", entity=f"client.{name}", caps=words)
    finally:
        admin.close()
    keyring = folder / f"{name}.keyring"
    descriptor = os.open(keyring, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"[client.{name}]\n\tkey = {made[0]['key']}\n")
    return keyring

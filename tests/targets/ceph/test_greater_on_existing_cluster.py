"""Settings of OSD hosts on an existing cluster: over a real SSH, and never object stores."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh_server import SSHD, SshServer, ssh_server

from cephfit.ceph.host_access import SshAccess
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.targets.ceph.existing_cluster import ClusterChoice, ExistingClusterTarget

pytestmark = [
    pytest.mark.ceph,
    pytest.mark.root,
    pytest.mark.fio,
    pytest.mark.skipif(SSHD is None, reason="needs sshd (Debian: openssh-server)"),
]

TUNED = Configuration(
    "tuned",
    (
        Setting(Partition.GREATER, "osd_disk", "nr_requests", 64),
        Setting(Partition.GREATER, "osd_disk", "scheduler", "mq-deadline"),
        Setting(Partition.GREATER, "osd_disk/class:ssd", "read_ahead_kb", 1024),
    ),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(scope="module")
def config(server: SshServer) -> Path:
    return server.client_config()


def choice(lab: Lab, config: Path) -> ClusterChoice:
    access = SshAccess(config=config, destinations={socket.gethostname(): "direct"})
    return ClusterChoice(conf=lab.conf, ssh=access, pool_defaults={"crush_rule": "hdd", "pg_num": 16})


def queues(lab: Lab) -> list[tuple[str, str, str]]:
    """Return the value of each OSD's disk, from the kernel."""
    folders = [Path("/sys/block") / lab.osd_disk(osd).name / "queue" for osd in lab.osd_ids()]
    keys = ("scheduler", "nr_requests", "read_ahead_kb")
    return [tuple((folder / key).read_text().strip() for key in keys) for folder in folders]


@pytest.mark.slow
def test_disks_are_tuned_over_ssh_and_restored_after_a_kill(
    lab_cluster: Lab, server: SshServer, config: Path
) -> None:
    before, logins = queues(lab_cluster), server.log().count("Accepted publickey")
    code = (
        "import sys, time; from pathlib import Path\n"
        "sys.path[:0] = sys.argv[3:]\n"
        "from test_greater_on_existing_cluster import *\n"
        "lab = Lab.open(folder=Path(sys.argv[1]))\n"
        "target = ExistingClusterTarget('ceph:lab', choice(lab, Path(sys.argv[2])))\n"
        f"applied = target.apply(TUNED, n_clients=1, volume_nbytes={16 * MIB}, fill=False)\n"
        "print(applied.ok, applied.mismatches, flush=True); time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", code, str(lab_cluster.folder), str(config), *sys.path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "True ()\n"
        tuned = queues(lab_cluster)
        os.kill(victim.pid, signal.SIGKILL)
    assert server.log().count("Accepted publickey") > logins
    assert [(s.partition("[")[2].partition("]")[0], n) for s, n, _ in tuned] == [("mq-deadline", "64")] * 4
    assert [read_ahead for _, _, read_ahead in tuned[2:]] == ["1024", "1024"]

    target = ExistingClusterTarget("ceph:lab", choice(lab_cluster, config))
    try:
        target.reset()
    finally:
        target.close()
    assert queues(lab_cluster) == before


def test_its_osds_are_never_recreated(lab_cluster: Lab, config: Path) -> None:
    xfs = Configuration("xfs", (Setting(Partition.GREATER, "osd_store", "filesystem", "xfs"),))
    target = ExistingClusterTarget("ceph:lab", choice(lab_cluster, config), for_change=False)
    try:
        (reason,) = target.unsupported([xfs])["xfs"]
    finally:
        target.close()
    assert "only the OSDs of a lab are recreated" in reason


def test_without_access_to_the_hosts_the_reason_is_reported(
    lab_cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "another-machine")
    target = ExistingClusterTarget("ceph:lab", ClusterChoice(conf=lab_cluster.conf), for_change=False)
    try:
        reasons = target.unsupported([TUNED])["tuned"]
    finally:
        target.close()
    assert all("need access to it" in reason for reason in reasons)

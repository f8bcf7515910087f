"""A lab with servers of other protocols, and what is left of it after a kill."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_at_work import kill_at_work
from target_contract import DEFAULT

from cephfit.core.errors import InputError
from cephfit.core.protocols import Target
from cephfit.core.units import MIB
from cephfit.lab import lab_lifecycle
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import processes
from cephfit.lab.lab_spec import LabSpec, parse_backends
from cephfit.operations.measuring.target_choice import open_target


def test_names_of_back_ends_are_read() -> None:
    assert parse_backends("nfs, iscsi,nfs") == ("nfs", "iscsi")
    assert parse_backends("") == ()
    with pytest.raises(InputError, match="no back end 'gluster'"):
        parse_backends("nfs,gluster")


def test_a_specification_with_back_ends_is_written_and_read() -> None:
    spec = LabSpec(backends=("iscsi", "local"))
    assert LabSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    without = {key: value for key, value in spec.to_json().items() if key != "backends"}
    assert LabSpec.from_json(without).backends == ()


_PROTOCOLS = ("iscsi", "nfs", "swift")
_DAEMONS = (
    "tgtd",
    "rpcbind",
    "ganesha",
    "memcached",
    "swift-proxy",
    "swift-account",
    "swift-container",
    "swift-object",
)
_SWEEP_AT_WORK = """
import sys, time
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration
from cephfit.operations.measuring.target_choice import open_target
for text in sys.argv[1:]:
    target = open_target(text, for_change=True)
    target.apply(Configuration("A"), n_clients=1, volume_nbytes=32 * MIB)
    target.close()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab.up("tests-backends", folder=tmp_path_factory.mktemp("lab"), spec=LabSpec(backends=_PROTOCOLS))
    yield lab
    lab.down()


def _random_writes(target: Target) -> float:
    """IOPS of 4K random writes at depth 8 for 2 s."""
    (client,) = target.clients()
    argv = ("fio", "--name=w", "--rw=randwrite", "--bs=4k", "--iodepth=8", "--ioengine=libaio", "--direct=1")
    argv += ("--runtime=2", "--time_based", "--output-format=json", f"--filename={client.device}")
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["jobs"][0]["write"]["iops"])


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.backends
@pytest.mark.fio
@pytest.mark.slow
class TestLabWithBackEnds:
    def test_servers_run_and_their_disks_have_the_limits_of_the_osds(self, lab: Lab) -> None:
        status = lab.status()
        assert status.health == "HEALTH_OK" and not status.dead
        assert {*_DAEMONS} <= {daemon.name for daemon in status.daemons}
        assert [b.target for b in status.backends] == [f"{protocol}:lab:{lab.name}" for protocol in _PROTOCOLS]
        assert all(b.limits == lab.spec.limits["hdd"] for b in status.backends)

    def test_nothing_listens_in_the_network_of_this_machine(self, lab: Lab) -> None:
        ours = [f"pid={lab._parts.daemons.pid(name)}," for name in _DAEMONS]
        listening = subprocess.run(("ss", "-ltunp"), capture_output=True, text=True, check=True).stdout
        assert not [pid for pid in ours if pid in listening]

    @pytest.mark.parametrize("protocol", ["iscsi", "nfs"])
    def test_writes_are_as_slow_as_the_disk(self, lab: Lab, protocol: str) -> None:
        target = open_target(f"{protocol}:lab:{lab.name}", for_change=True)
        try:
            assert target.apply(DEFAULT, n_clients=1, volume_nbytes=32 * MIB).ok
            limit = lab.spec.limits["hdd"].iops
            # The throttle works in slices of 100 ms. A machine under load may be slower than the disk.
            assert 0.1 * limit < _random_writes(target) < 1.2 * limit
        finally:
            target.reset()
            target.close()

    def test_a_stopped_lab_starts_with_its_servers_and_data(self, lab: Lab) -> None:
        lab.stop()
        assert not processes.of_folder(lab.folder)
        started = time.monotonic()
        lab.start()
        assert time.monotonic() - started < 120
        assert not lab.status().dead
        for protocol in _PROTOCOLS:
            assert lab.backend(protocol).problem() == ""

    def test_what_a_killed_sweep_leaves_is_removed_with_the_lab(self, lab: Lab) -> None:
        targets = [f"{protocol}:lab:{lab.name}" for protocol in _PROTOCOLS]
        kill_at_work(_SWEEP_AT_WORK, *targets, after_seconds=0.0)
        exported = [argv for pid in processes.of_folder(lab.folder) if (argv := processes.command_line(pid))]
        assert sum(Path(argv[0]).name == "nbdfuse" for argv in exported) == 3
        lab.down()
        assert not lab_lifecycle.what_is_left(lab.folder)
        assert not lab.folder.exists()

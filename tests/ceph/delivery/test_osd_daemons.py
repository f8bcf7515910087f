"""Ways to restart OSDs: by cephadm, by systemd on a host, and by a program of the site."""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.delivery.osd_restarts import CephadmOsds, ProgramOsds, SystemdOsds
from cephfit.ceph.host import Finished
from cephfit.ceph.host_access import Hosts
from cephfit.core.errors import ClusterError, HostError


class Scripted:
    """A cluster with given answers; records its commands."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.commands: list[tuple[str, dict[str, Any]]] = []

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        self.commands.append((prefix, arguments))
        answer = self._answers[prefix]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        raise AssertionError("OSDs get no command to restart")

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        raise AssertionError("nothing binary here")

    def close(self) -> None:
        pass


class SomeHost:
    """A machine with the used parts of systemd."""

    def __init__(self, units: dict[str, str], code: int = 0) -> None:
        self.name = "storage1"
        self._units = units
        self._code = code
        self.ran: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], *, seconds: float = 30.0, stdin: str = "") -> Finished:
        self.ran.append(tuple(argv))
        if argv[1] == "show":
            return Finished(0, self._units.get(argv[-1], "not-found") + "\n", "")
        return Finished(self._code, "", "Job for it failed." if self._code else "")


class OneHost(Hosts):
    def __init__(self, host: SomeHost) -> None:
        super().__init__()
        self._host = host

    def named(self, name: str) -> Any:
        if name != self._host.name:
            raise HostError("no way there", where=name)
        return self._host


def test_cephadm_restarts_by_the_orchestrator() -> None:
    cluster = Scripted({"orch status": {"available": True, "backend": "cephadm"}, "orch daemon": None})
    osds = CephadmOsds(cluster)
    assert osds.why_not(3) == ""
    osds.restart(3)
    assert cluster.commands[-1] == ("orch daemon", {"action": "restart", "name": "osd.3"})


def test_a_cluster_without_orchestrator_is_reported() -> None:
    refused = RefusedError("No orchestrator configured", code=errno.ENOENT)
    assert "no orchestrator" in CephadmOsds(Scripted({"orch status": refused})).why_not(0)
    asleep = Scripted({"orch status": {"available": False, "backend": "rook", "reason": "no pods"}})
    assert CephadmOsds(asleep).why_not(0) == "the cluster's orchestrator (rook) is not available: no pods"


def test_systemd_restarts_the_unit_on_the_osds_host() -> None:
    host = SomeHost({"ceph-osd@3.service": "loaded"})
    osds = SystemdOsds(Scripted({"osd metadata": {"hostname": "storage1"}}), OneHost(host))
    assert osds.why_not(3) == ""
    osds.restart(3)
    assert host.ran[-1] == ("systemctl", "restart", "ceph-osd@3.service")
    assert host.ran[-2] == ("systemctl", "reset-failed", "ceph-osd@3.service")
    assert osds.why_not(4) == "host storage1 has no unit ceph-osd@4.service (not-found)"


class LimitedHost(SomeHost):
    """systemd with Ceph's unit: a fourth start in half an hour is refused, and the OSD is down."""

    def __init__(self) -> None:
        super().__init__({"ceph-osd@3.service": "loaded"})
        self._n_starts = 0

    def run(self, argv: Sequence[str], *, seconds: float = 30.0, stdin: str = "") -> Finished:
        if argv[1] == "reset-failed":
            self._n_starts = 0
        if argv[1] == "restart":
            self._n_starts += 1
            if self._n_starts > 3:
                return Finished(1, "", "Job for ceph-osd@3.service failed: start request repeated too quickly")
        return super().run(argv, seconds=seconds, stdin=stdin)


def test_a_sweep_restarts_an_osd_more_often_than_its_unit_allows() -> None:
    osds = SystemdOsds(Scripted({"osd metadata": {"hostname": "storage1"}}), OneHost(LimitedHost()))
    for _ in range(8):
        osds.restart(3)


def test_a_host_that_cannot_be_reached_and_a_unit_that_fails() -> None:
    far = SystemdOsds(Scripted({"osd metadata": {"hostname": "far"}}), OneHost(SomeHost({})))
    assert far.why_not(0) == "host far of osd.0 does not answer: no way there"
    sick = SomeHost({"ceph-osd@3.service": "loaded"}, code=1)
    with pytest.raises(HostError, match=r"Job for it failed"):
        SystemdOsds(Scripted({"osd metadata": {"hostname": "storage1"}}), OneHost(sick)).restart(3)


def test_a_program_gets_osd_and_host_and_its_failure_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "restart"
    program.write_text(f'#!/bin/sh\necho "$1 $2" > {tmp_path}/called\n')
    program.chmod(0o755)
    osds = ProgramOsds(Scripted({"osd metadata": {"hostname": "storage1"}}), program)
    assert osds.why_not(5) == ""
    osds.restart(5)
    assert (tmp_path / "called").read_text() == "5 storage1\n"
    program.write_text("#!/bin/sh\necho starting; echo no such unit >&2; exit 7\n")
    with pytest.raises(ClusterError, match=r"did not restart osd\.5 and ended with code 7: no such unit") as e:
        osds.restart(5)
    assert "run the program manually" in e.value.remedy
    assert "no program" in ProgramOsds(Scripted({}), tmp_path / "none").why_not(5)

"""fio fills volumes completely, or the error states what is missing and what to do."""

import json
import os
from pathlib import Path

import pytest

from cephfit.ceph.volumes import Volume
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.units import MIB
from cephfit.targets.ceph.volume_clients import fill

VOLUMES = [Volume("cephfit-default", f"c{n}", 8 * MIB) for n in range(2)]


@pytest.fixture
def fio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder from which a replacement of fio reads its output, its errors and its exit code."""
    program = tmp_path / "bin" / "fio"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\necho $CEPH_CONF $(cut -d' ' -f6 /proc/$$/stat) >{tmp_path}/seen\ncat {tmp_path}/printed\n"
        f"cat {tmp_path}/errors >&2\nexit $(cat {tmp_path}/code)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def prints(fio: Path, nbytes: int, *, errors: str = "", code: int = 0) -> None:
    document = {"fio version": "fio-3.33", "jobs": [{"jobname": "c0", "write": {"io_bytes": nbytes}}]}
    (fio / "printed").write_text(json.dumps(document, indent=2))
    (fio / "errors").write_text(errors)
    (fio / "code").write_text(str(code))


def test_fio_gets_the_clients_conf_and_no_keyboard_interrupt(fio: Path) -> None:
    prints(fio, 16 * MIB)
    fill(VOLUMES, conf=fio / "client.conf")
    conf, session = (fio / "seen").read_text().split()
    assert conf == str(fio / "client.conf")
    assert int(session) != os.getsid(0), "only cephfit gets it, and ends the program"


def test_the_error_states_the_missing_bytes(fio: Path) -> None:
    prints(fio, 12 * MIB)
    with pytest.raises(
        ClusterError, match=r"could not fill the volumes: it wrote 12582912 of 16777216 bytes"
    ) as e:
        fill(VOLUMES, conf=fio / "client.conf")
    assert "reported" not in e.value.what
    assert e.value.where == "cephfit-default/c0, cephfit-default/c1"
    assert "free capacity and quota" in e.value.remedy


def test_the_error_has_the_message_of_fio(fio: Path) -> None:
    prints(fio, 0, errors="fio: engine rbd not loadable\n", code=1)
    message = "0 of 16777216 bytes and reported: fio: engine rbd not loadable"
    with pytest.raises(ClusterError, match=message) as caught:
        fill(VOLUMES, conf=fio / "client.conf")
    assert "built with it" in caught.value.remedy


def test_without_fio_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="fio is missing") as caught:
        fill(VOLUMES, conf=tmp_path / "client.conf")
    assert "apt install fio" in caught.value.remedy

"""Files of hosts, replaced whole: here and over SSH."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from ssh_server import SSHD, ssh_server

from cephfit.ceph.host import Host, LocalHost, read_bytes, remove_draft, replace
from cephfit.ceph.host_access import SshHost
from cephfit.core.errors import HostError


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.root)])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    if request.param == "local":
        yield LocalHost()
        return
    if SSHD is None:
        pytest.skip("needs sshd (Debian: openssh-server)")
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        reached = SshHost("direct", config=server.client_config())
        yield reached
        reached.close()


def test_a_file_is_replaced_whole_with_its_owner_and_mode(host: Host, tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "ceph.conf", tmp_path / "ceph.conf"
    real.parent.mkdir()
    real.write_bytes(b"\xff old\r\n")
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 4321, 8765)
    link.symlink_to(real)
    before, content = real.stat(), bytes(range(256)) * 100
    replace(host, PurePosixPath(link), content)
    after = real.stat()
    assert read_bytes(host, PurePosixPath(link)) == real.read_bytes() == content
    assert link.is_symlink()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert after.st_ino != before.st_ino, "who has the old one open goes on reading it whole"
    assert sorted(p.name for p in real.parent.iterdir()) == ["ceph.conf"]
    (tmp_path / "real" / "ceph.conf.cephfit-new").write_text("half of it")
    remove_draft(host, PurePosixPath(link))
    assert sorted(p.name for p in real.parent.iterdir()) == ["ceph.conf"]
    with pytest.raises(HostError, match="No such file"):
        replace(host, PurePosixPath(tmp_path / "absent"), b"")

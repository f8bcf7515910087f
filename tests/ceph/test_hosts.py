"""This machine, and machines over SSH: the real sshd answers."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_contract import HostContract
from ssh_server import SSHD, SshServer, new_key, ssh_server

from cephfit.ceph.host import Host, LocalHost, checked
from cephfit.ceph.host_access import Hosts, SshAccess, SshHost
from cephfit.core.errors import HostError, LackingError

needs_sshd = pytest.mark.skipif(
    SSHD is None or os.geteuid() != 0, reason="needs root and sshd (Debian: openssh-server)"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as running:
        yield running


class TestLocalHost(HostContract):
    @pytest.fixture
    def host(self) -> Iterator[Host]:
        yield LocalHost()


@needs_sshd
class TestSshHost(HostContract):
    @pytest.fixture
    def host(self, server: SshServer) -> Iterator[Host]:
        host = SshHost("direct", config=server.client_config())
        yield host
        host.close()


@needs_sshd
class TestSshHostWithSudo(HostContract):
    @pytest.fixture
    def host(self, server: SshServer) -> Iterator[Host]:
        host = SshHost("root@direct", sudo=True, config=server.client_config())
        yield host
        host.close()


@needs_sshd
def test_a_jump_host_of_the_ssh_configuration_is_used(server: SshServer) -> None:
    before = server.log().count("Accepted publickey")
    host = SshHost("beyond", config=server.client_config())
    assert checked(host, ["echo", "here"]) == "here\n"
    host.close()
    assert server.log().count("Accepted publickey") == before + 2


@needs_sshd
def test_a_host_with_another_key_than_the_known_one_is_refused(server: SshServer, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server.port} {new_key(tmp_path / 'impostor')}")
    host = SshHost("direct", config=server.client_config(known_hosts=known))
    with pytest.raises(LackingError, match="its host key does not match the known one") as caught:
        host.run(["true"])
    assert "`ssh direct`" in caught.value.remedy


@needs_sshd
def test_a_host_that_is_not_known_at_all_is_refused(server: SshServer, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.touch()
    host = SshHost("direct", config=server.client_config(known_hosts=known))
    with pytest.raises(HostError, match="host key"):
        host.run(["true"])
    assert not known.read_text(), "nor is it taken up"


@needs_sshd
def test_a_key_that_is_not_authorised_is_an_error_with_a_remedy(server: SshServer, tmp_path: Path) -> None:
    new_key(tmp_path / "unknown")
    host = SshHost("direct", config=server.client_config(identity=tmp_path / "unknown"))
    with pytest.raises(LackingError, match="login was refused") as caught:
        host.run(["true"])
    assert "IdentityFile" in caught.value.remedy


def test_a_host_without_an_ssh_server_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    with pytest.raises(HostError, match="cannot be reached by SSH") as caught:
        SshHost("gone", config=config).run(["true"])
    assert caught.value.where == "gone"


@needs_sshd
def test_a_broken_connection_is_opened_again(server: SshServer) -> None:
    host = SshHost("direct", config=server.client_config())
    climb = (
        'p=$$; until grep -q ^sshd /proc/$p/comm; do p=$(sed "s/.*) . //; s/ .*//" /proc/$p/stat); done; echo $p'
    )
    session = int(checked(host, ["sh", "-c", climb]))
    with pytest.raises(HostError, match="the SSH connection broke"):
        host.run(["kill", "-9", str(session)])
    assert checked(host, ["echo", "here"]) == "here\n"
    host.close()


def test_a_host_without_a_way_to_it_is_refused() -> None:
    with pytest.raises(LackingError, match="need access to it"):
        Hosts().named("some-other-machine")
    assert isinstance(Hosts(all_local=True).named("host0"), LocalHost)


@needs_sshd
def test_cephs_names_of_hosts_lead_to_ssh_destinations(server: SshServer) -> None:
    hosts = Hosts(SshAccess(config=server.client_config(), destinations={"ceph-osd-7": "direct"}))
    host = hosts.named("ceph-osd-7")
    assert host.name == "ceph-osd-7"
    assert checked(host, ["echo", "here"]) == "here\n"
    hosts.close()

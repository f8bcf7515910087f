"""A real sshd on 127.0.0.1 with keys, port and files of its own, all in one folder."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cephfit.ceph.host import SEARCH_PATH

SSHD = shutil.which("sshd", path=SEARCH_PATH)


@dataclass(frozen=True, slots=True)
class SshServer:
    """A running sshd.

    Attributes:
        folder: all its files, and ``config``: an SSH configuration of clients.
        port: on 127.0.0.1.
    """

    folder: Path
    port: int

    def client_config(self, *, known_hosts: Path | None = None, identity: Path | None = None) -> Path:
        """An SSH configuration with the hosts ``direct`` and ``beyond``, the latter only through the former."""
        file = self.folder / f"config-{len(list(self.folder.glob('config-*')))}"
        file.write_text(
            f"Host direct beyond\n"
            f"  HostName 127.0.0.1\n"
            f"  Port {self.port}\n"
            f"  User root\n"
            f"  IdentityFile {identity or self.folder / 'user'}\n"
            f"  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known_hosts or self.folder / 'known_hosts'}\n"
            f"Host beyond\n"
            f"  ProxyJump direct\n"
        )
        return file

    def log(self) -> str:
        return (self.folder / "log").read_text()


def new_key(file: Path) -> str:
    """Make a key pair; the public half as text."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file.with_suffix(".pub").read_text()


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """Start sshd, and end it by its id."""
    assert SSHD is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    host_key = new_key(folder / "host")
    (folder / "authorized").write_text(new_key(folder / "user"))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's own, empty for ever (sshd(8))
    options = {
        "ListenAddress": "127.0.0.1",
        "Port": port,
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": folder / "pid",
        "StrictModes": "no",  # pytest's folder of the moment may lie below one that others can write
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "LogLevel": "VERBOSE",
    }
    config = folder / "sshd_config"
    config.write_text("".join(f"{key} {value}\n" for key, value in options.items()))
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=log)
        try:
            until = time.monotonic() + 10
            while "listening on" not in (folder / "log").read_text():
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until
                time.sleep(0.02)
            yield SshServer(folder, port)
        finally:
            server.terminate()
            server.wait(10)

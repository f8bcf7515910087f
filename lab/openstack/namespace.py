"""A mount namespace of the lab's OpenStack: its own /run, its own libvirt, its own network namespaces' names.

libvirt's folders cannot be configured, and neutron's agents, dnsmasq and haproxy leave mounts and sockets in /run.
In a separate namespace all of them belong to the lab: nothing on this machine is changed, and the kernel removes
them with the last process, also after a kill.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cephfit.ceph.environment.osd_store import FILE_SYSTEMS
from cephfit.core.errors import HostError
from cephfit.lab import processes
from cephfit.lab.devices.mounts import mounts
from cephfit.lab.machine import find_program, run
from cephfit.lab.openstack.layout import Layout

_SHADOWED = {
    "/etc/libvirt": "libvirt/etc",
    "/var/lib/libvirt": "libvirt/lib",
    "/var/cache/libvirt": "libvirt/cache",
    "/var/log/libvirt": "libvirt/log",
    "/etc/ceph": "ceph",
}
"""Folder of this machine to the folder below the lab's ``var`` that is mounted over it for services."""

_SEPARATE_SECONDS = 10.0

TEMPORARY = "/run/tmp"
"""Temporary files of the services: in memory and private."""


def environment_of(layout: Layout, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs of the lab's OpenStack, without variables of the caller."""
    return {
        processes.MARK: str(layout.lab_folder),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(layout.folder / "var"),
        "TMPDIR": TEMPORARY,
        # Neutron sets process titles; without this they would overwrite the mark in /proc.
        "SPT_NOENV": "1",
        **extra,
    }


class MountNamespace:
    """A mount namespace, held by one sleeping process.

    Args:
        layout: of the lab's OpenStack.
        holder: id of the process that holds the namespace.
    """

    def __init__(self, layout: Layout, holder: int) -> None:
        self._layout = layout
        self._holder = holder

    @staticmethod
    def holder_argv() -> tuple[str, ...]:
        """Command line of the holder."""
        return (find_program("unshare") or "unshare", "--mount", "--propagation", "private", "sleep", "infinity")

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs a program inside."""
        return (find_program("nsenter") or "nsenter", f"--mount=/proc/{self._holder}/ns/mnt", "--", *argv)

    def call(self, argv: Sequence[str], *, seconds: float = 60.0) -> str:
        """Run a program inside and return its output; see ``machine.run``."""
        return run(self.wrap(argv), seconds=seconds, environment=environment_of(self._layout, {}))

    def wait_separate(self) -> None:
        """Wait until the holder, just started, has left this process's namespace.

        Raises:
            HostError: it cannot.
        """
        until = time.monotonic() + _SEPARATE_SECONDS
        ours = Path("/proc/self/ns/mnt").readlink()
        while True:
            with suppress(OSError):
                if Path(f"/proc/{self._holder}/ns/mnt").readlink() != ours:
                    return
            if time.monotonic() > until:
                raise HostError(
                    "this kernel provides no separate mount namespace (unshare --mount)", where="kernel"
                )
            time.sleep(0.01)

    def furnish(self) -> None:
        """Mount the lab's folders over those of the machine; unmount disks that labs have mounted."""
        for mount in mounts():
            if mount.kind in FILE_SYSTEMS and mount.point.name.startswith("osd."):
                self.call(["umount", "--lazy", str(mount.point)])
        self.call(["mount", "-t", "tmpfs", "-o", "mode=755,size=64m", "tmpfs", "/run"])
        for folder in (TEMPORARY, "/run/lock", "/run/netns", "/run/libvirt"):
            self.call(["mkdir", "-p", folder])
        for place, own in _SHADOWED.items():
            home = self._layout.home(own)
            home.mkdir(parents=True, exist_ok=True)
            self.call(["mount", "--bind", str(home), place])

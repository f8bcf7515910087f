"""The network of a lab's clients: a namespace of their own, whose distance to the daemons can be set.

The kernel's netem would do this on a virtual interface. Many kernels lack it (it is a module, ``sch_netem``), so
that a process relays the packets instead (``packet_relay``). Dropping data inside a TCP proxy would break
connections; here whole IP packets are dropped, and the TCP of both ends repeats them.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cephfit.ceph.environment.network_emulation import Emulation
from cephfit.core.errors import ClusterError, HostError
from cephfit.lab.daemons import processes
from cephfit.lab.machine import find_program, require_programs
from cephfit.lab.network.packet_relay import APPLIED, PID, SETTINGS, PathValues
from cephfit.lab.network.path_probe import PINGS, PathFigures, measured

_START_SECONDS = 20.0
_APPLY_SECONDS = 10.0
_POLL_SECONDS = 0.02
_PORTS_BEGIN = 1024
_QUICK_PINGS = 40


@dataclass(frozen=True, slots=True)
class PathReading:
    """The path as it is now.

    Attributes:
        values: in force in the relay.
        figures: as measured.
    """

    values: Emulation
    figures: PathFigures

    def to_json(self) -> dict[str, Any]:
        return {"asked": asdict(self.values), "measured": self.figures.to_json()}


def addresses(mon_port: int) -> tuple[str, str]:
    """Return the addresses of both ends: two of 198.18.0.0/15, which RFC 2544 reserves for tests of networks.

    Args:
        mon_port: of the lab; no two labs of a machine have the same.
    """
    low = 2 * (mon_port - _PORTS_BEGIN)
    first = (198 << 24) + (18 << 16) + low

    def text(number: int) -> str:
        return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))

    return text(first), text(first + 1)


class ClientNetwork:
    """Implements ``ClientPath`` for one lab; all state is in its folder and in the kernel.

    Args:
        folder: of the lab.
        mon_port: of the lab.
    """

    def __init__(self, folder: Path, mon_port: int) -> None:
        self._folder = folder
        self._home = folder / "client-network"
        self._mon_port = mon_port

    @property
    def pid(self) -> int | None:
        """The relay; None if it does not run."""
        return processes.from_pid_file(self._home / PID, self._folder)

    def start(self) -> None:
        """Start the relay unless it runs, without a distance.

        Raises:
            HostError: this machine has no TUN devices or no network namespaces.
        """
        if self.pid is not None:
            return
        require_programs("ip", "nsenter")
        if not Path("/dev/net/tun").exists():
            raise HostError(
                "this kernel has no TUN devices (/dev/net/tun), so the clients' network cannot be separated",
                where="kernel",
                remedy="load the module: modprobe tun; or create the lab without --client-network",
            )
        self._home.mkdir(exist_ok=True)
        (self._home / PID).unlink(missing_ok=True)
        self._write(Emulation(), serial=0)
        argv = [
            sys.executable,
            "-m",
            "cephfit.lab.network.packet_relay",
            str(self._home),
            *addresses(self._mon_port),
        ]
        with (self._home / "log").open("w") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, processes.MARK: str(self._folder)},
            )
        until = time.monotonic() + _START_SECONDS
        while self.pid is None:
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                lines = (self._home / "log").read_text().strip().splitlines()
                raise HostError(
                    f"the clients' network does not start: {lines[-1] if lines else 'no reason is known'}",
                    where=str(self._home / "log"),
                    remedy="it needs TUN devices and network namespaces; a container may forbid both",
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End the relay; its devices and its namespace end with it."""
        if (pid := self.pid) is not None:
            processes.stop([pid])

    def inside(self) -> tuple[str, ...]:
        """Return the words before a command that run it as a client.

        Raises:
            ClusterError: the relay does not run.
        """
        return (find_program("nsenter") or "nsenter", f"--net=/proc/{self._running()}/ns/net", "--")

    def identity(self) -> str:
        """Return a text that changes when the network is made again.

        Raises:
            ClusterError: the relay does not run.
        """
        return str(Path(f"/proc/{self._running()}/ns/net").readlink())

    def set(self, values: Emulation) -> None:
        """Set the distance; return when it is in force for new packets.

        Raises:
            ClusterError: the relay does not run.
        """
        pid, serial = self._running(), time.monotonic_ns()
        self._write(values, serial=serial)
        processes.send([pid], signal.SIGHUP)
        until = time.monotonic() + _APPLY_SECONDS
        while self._applied().get("serial") != serial:
            if time.monotonic() > until:
                raise ClusterError("the clients' network does not take new values", where=str(self._home / "log"))
            time.sleep(_POLL_SECONDS)

    def read(
        self, *, pings: int = _QUICK_PINGS, transfer_seconds: float = 0.0, one_by_one: bool = False
    ) -> PathReading:
        """Return the values in force, and what a client measures; arguments as in ``path_probe.measured``.

        Raises:
            ClusterError: the relay does not run.
            HostError: no packet came back.
        """
        figures = measured(self.inside(), pings=pings, transfer_seconds=transfer_seconds, one_by_one=one_by_one)
        return PathReading(Emulation(**self._applied()["values"]), figures)

    def measured(self) -> tuple[Emulation, str]:
        """Return the values in force, and what a client measures in a moment, as text. Raises as ``read``."""
        found = self.read()
        its = found.figures
        text = (
            f"round trip {its.rtt_ms:.2f} ms (deviation {its.rtt_sd_ms:.2f}), {its.loss_pct:.1f} % lost each way"
        )
        return found.values, text

    def calibrate(self, *, transfer_seconds: float = 2.0) -> PathReading:
        """Measure the path with many datagrams and a transfer. Raises as ``read``."""
        return self.read(pings=PINGS, transfer_seconds=transfer_seconds)

    def _running(self) -> int:
        pid = self.pid
        if pid is None:
            raise ClusterError(
                "the clients' network does not run",
                where=str(self._folder),
                remedy="start it with `cephfit lab start`",
            )
        return pid

    def _write(self, values: Emulation, *, serial: int) -> None:
        document = {"serial": serial, "values": asdict(PathValues(**asdict(values)))}
        (self._home / SETTINGS).write_text(json.dumps(document))

    def _applied(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self._home / APPLIED).read_text())
            return found
        return {}

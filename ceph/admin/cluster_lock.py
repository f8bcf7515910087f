"""Lock of a cluster in the monitors' key-value store: one sweep at a time, from any machine.

A process that takes the lock writes its key below ``cephfit/lock/`` and then reads all keys. The monitors order
all writes, so of two concurrent processes at least one sees the other. A process that sees another removes its
own key. Nothing expires by itself: a key states who holds the lock, since when, and when it was last seen alive.
A key stays after its holder's end if changes are left that only the holder's journal can undo.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from cephfit.ceph.admin.answers import LOCK_PREFIX
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin
from cephfit.core.units import format_seconds

_RENEWAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock.

    Attributes:
        host: name of the machine.
        processes: identifier of boot and process table; holders with the same one see each other's processes.
        state: identifier of the state folder; it survives reboots and renames.
        user: name.
        pid: process; 0 for one that ended and left changes.
        folder: of its journal.
        since_s: when it took the lock, seconds since the epoch by its own clock.
        seen_s: when it was last alive, by its own clock.
        left: number of changes that were not undone at ``seen_s``.
    """

    host: str
    processes: str
    state: str
    user: str
    pid: int
    folder: str
    since_s: float
    seen_s: float
    left: int

    def __str__(self) -> str:
        who = f"{self.user} on {self.host}"
        return f"{who}, process {self.pid}" if self.pid else who


class ClusterLock:
    """Holds the lock of a cluster until ``release``.

    Args:
        admin: of the cluster.
        folder: this target's state on this machine. The caller holds its local lock, so a key from the same
            folder belongs to a process that has ended.
        target: for messages.
        n_left: returns the number of changes in the journal.
        note: called with a message when the lock of an ended process is taken over.
        take_over: also take the lock from a holder that may still run.

    Raises:
        ClusterError: another process holds it.
    """

    def __init__(
        self,
        admin: CephAdmin,
        folder: Path,
        *,
        target: str,
        n_left: Callable[[], int],
        note: Callable[[str], None],
        take_over: bool,
    ) -> None:
        self._admin = admin
        self._target = target
        self._n_left = n_left
        now = time.time()
        self._holder = Holder(
            host=socket.gethostname(),
            processes=_processes(),
            state=_state_of(folder),
            user=_user(),
            pid=os.getpid(),
            folder=str(folder),
            since_s=now,
            seen_s=now,
            left=n_left(),
        )
        self._key = LOCK_PREFIX + secrets.token_hex(8)
        self._renewed = time.monotonic()
        earlier = self._keys_to_replace(note, take_over)
        self._write()  # first: a kill in between must not lose the number of changes that are left
        for key in earlier:
            self._remove(key)
        rivals = [holder for key, holder in self._read().items() if key != self._key]
        if rivals:
            self.release()
            raise self._taken(rivals[0])

    def renew(self, *, at_once: bool = False) -> None:
        """Show that the holder is alive. Writes at most once a minute unless ``at_once``; call it often.

        Raises:
            ClusterError: another process has taken the lock over.
        """
        if not at_once and time.monotonic() - self._renewed < _RENEWAL_SECONDS:
            return
        holders = self._read()
        if self._key not in holders:
            by = "; ".join(map(str, holders.values())) or "it has no holder now"
            raise ClusterError(f"another process took this cluster's lock: {by}", where=self._target)
        self._write()
        self._renewed = time.monotonic()

    def release(self) -> None:
        """Release the lock. The key stays if changes are left: only this folder's journal can undo them."""
        if self._n_left():
            self._write(pid=0)
        else:
            self._remove(self._key)

    def _keys_to_replace(self, note: Callable[[str], None], take_over: bool) -> list[str]:
        """Return the keys of this folder and of ended processes; with ``take_over`` all keys."""
        found = self._read()
        for holder in found.values():
            is_ours = holder.state == self._holder.state
            is_dead = self._is_dead(holder)
            if not is_ours and not (is_dead and not holder.left) and not take_over:
                raise self._taken(holder)
            if not is_ours:
                note(f"the lock of {holder} is taken over; {_remains(holder)}")
        return list(found)

    def _taken(self, holder: Holder) -> ClusterError:
        ago = format_seconds(max(0.0, time.time() - holder.seen_s))
        if self._is_dead(holder):
            what = f"{holder} ended and left {holder.left} changes on this cluster"
            remedy = "they should run `cephfit restore` on this cluster; --take-over continues without it"
        else:
            what = f"another cephfit is at work on this cluster: {holder}, seen {ago} ago by its own clock"
            remedy = f"wait for it; if it has ended, continue with --take-over: {_remains(holder)}"
        return ClusterError(what, where=self._target, remedy=remedy)

    def _is_dead(self, holder: Holder) -> bool:
        """Return whether the holder has certainly ended."""
        return not holder.pid or (holder.processes == self._holder.processes and not _is_alive(holder.pid))

    def _read(self) -> dict[str, Holder]:
        reported = self._admin.command("config-key dump", key=LOCK_PREFIX) or {}
        found = {}
        for key, text in reported.items():
            if not key.startswith(LOCK_PREFIX):
                # Before Mimic the command ignores the key and returns all of them, also those of encrypted disks.
                continue
            try:
                found[key] = Holder(**json.loads(text))
            except (ValueError, TypeError):
                raise ClusterError(
                    "this key is not a lock of this version of cephfit",
                    where=f"config-key {key}",
                    remedy=f"if no sweep runs, delete it: ceph config-key rm {key}",
                ) from None
        return found

    def _write(self, *, pid: int | None = None) -> None:
        holder = asdict(self._holder) | {"seen_s": time.time(), "left": self._n_left()}
        if pid is not None:
            holder["pid"] = pid
        self._admin.command("config-key set", key=self._key, val=json.dumps(holder))

    def _remove(self, key: str) -> None:
        self._admin.command("config-key rm", key=key)


def _remains(holder: Holder) -> str:
    if not holder.left:
        return "it had left no changes when it was last seen"
    return (
        f"its {holder.left} changes can be undone only from {holder.host}:{holder.folder}, by `cephfit restore` "
        "there; until then, measurements and restores happen on top of those changes"
    )


def _processes() -> str:
    """Identify this boot of this machine and its process table: each container has a separate table."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _state_of(folder: Path) -> str:
    file = folder / "identity"
    if not file.exists():
        draft = file.with_suffix(".new")
        draft.write_text(secrets.token_hex(16))
        draft.replace(file)
    return file.read_text()


def _user() -> str:
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or str(os.getuid())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

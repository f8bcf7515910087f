"""Settings around Ceph: the kernel's queue of a block device (``/sys/block/DISK/queue``)."""

from collections.abc import Iterable
from pathlib import Path

from cephfit.configuration import Setting, Value
from cephfit.errors import ClusterError, HostError
from cephfit.sweep.hosts.host import HostRefusedError
from cephfit.sweep.journal import Entry, Journal
from cephfit.sweep.options.option_value import as_ceph_writes

_SYSFS = "sysfs"
_SYS_BLOCK = Path("/sys/block")


class DiskQueues:
    """Sets queue values of disks, journalled first, and reads them back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def apply(self, wanted: Iterable[tuple[Setting, Path]]) -> None:
        """Set each setting on its device; every value changed before and not wanted now gets its original.

        Raises:
            HostError: the kernel has no such queue value, or refuses the new one.
        """
        values = {
            str(self._file(device, setting.key)): as_ceph_writes(setting.value) for setting, device in wanted
        }
        for entry in self._journal.entries(_SYSFS):
            if entry.place not in values:
                self._restore(entry)
        for place, value in values.items():
            path = Path(place)
            if not path.is_file():
                raise HostError("this kernel has no such queue value", where=place)
            was = read_queue_value(path)
            if was != value:
                self._journal.note(_SYSFS, place, was)
                _write(path, value)

    def restore(self, device: Path | None = None) -> None:
        """Give all queue values, or those of one device, their originals."""
        for entry in reversed(self._journal.entries(_SYSFS)):
            if device is None or _SYS_BLOCK / device.name in Path(entry.place).parents:
                self._restore(entry)

    def read_back(self, wanted: Iterable[tuple[Setting, Path]]) -> tuple[dict[str, dict[str, Value]], list[str]]:
        """Setting as text to device to value, and one sentence per value that did not take effect."""
        values: dict[str, dict[str, Value]] = {}
        mismatches = []
        for setting, device in wanted:
            got = read_queue_value(self._file(device, setting.key))
            values.setdefault(str(setting), {})[device.name] = got
            if got != as_ceph_writes(setting.value):
                mismatches.append(f"{device.name} has {setting.key} = {got}, not {setting.value}")
        return values, mismatches

    def has(self, device: Path, key: str) -> bool:
        """Whether the kernel knows this queue value."""
        return self._file(device, key).is_file()

    def _file(self, device: Path, key: str) -> Path:
        if "/" in key or key.startswith("."):
            raise ClusterError(f"{key!r} is not the name of a queue value", where=str(_SYS_BLOCK / device.name))
        return _SYS_BLOCK / device.name / "queue" / key

    def _restore(self, entry: Entry) -> None:
        path = Path(entry.place)
        # A loop device that is gone took its queue with it.
        if path.is_file() and read_queue_value(path) != entry.was:
            _write(path, str(entry.was))
        self._journal.forget(_SYSFS, entry.place)


def read_queue_value(path: Path) -> str:
    """A value; of a choice such as ``none [mq-deadline] kyber`` the one in brackets."""
    text = path.read_text().strip()
    _, bracket, rest = text.partition("[")
    return rest.partition("]")[0] if bracket else text


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise HostRefusedError(f"the kernel refuses {value!r}: {error.strerror}", where=str(path)) from None

"""Configurations of the scope around Ceph, and the OSDs on whose hosts they apply."""

import socket

from cephfit.ceph.admin.daemons import Daemon
from cephfit.ceph.environment.host_settings import OsdPlace
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value


def greater(**scopes: dict[str, Value]) -> Configuration:
    settings = [Setting(Partition.GREATER, s, key, v) for s, keys in scopes.items() for key, v in keys.items()]
    return Configuration("tried", tuple(sorted(settings)))


def osd(number: int, disk: str, *, host: str = socket.gethostname(), interfaces: tuple[str, ...] = ()) -> OsdPlace:
    daemon = Daemon("osd", str(number), "hdd" if number == 0 else "ssd", {"host": f"crush{number}"})
    return OsdPlace(daemon, host, (disk,), interfaces, "bluestore")

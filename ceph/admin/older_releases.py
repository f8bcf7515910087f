"""Differences of releases before Nautilus (14.2): shapes of answers, names of arguments, missing features.

Source: Ceph's sources of 12.2 and 13.2 (MonCommands.h, MonMap.cc, PGMap.cc). Not tested on clusters of that age.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin

_OLDEST = 12
_NAUTILUS = 14


def require_luminous(version: str, *, where: str) -> None:
    """Check that the release is supported.

    Raises:
        ClusterError: the cluster is older than Luminous.
    """
    if _major(version) < _OLDEST:
        raise ClusterError(
            f"this cluster runs Ceph {version}; its monitors and daemons do not report what cephfit needs",
            where=where,
            remedy="it works on Luminous (12.2) and later",
        )


def is_before_nautilus(version: str) -> bool:
    """Return whether a release, such as ``13.2.10``, is older than Nautilus."""
    return _major(version) < _NAUTILUS


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else _NAUTILUS


def as_before_nautilus(prefix: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a command's arguments for monitors before Nautilus.

    Confirmations were choices of one word: ``force`` for ``osd pool set``, ``sure`` for others. Pools had no
    autoscaler.
    """
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if name.startswith("yes_i_really_") and value is True:
            found["force" if prefix == "osd pool set" else "sure"] = "--" + name.replace("_", "-")
        elif name != "autoscale_mode":
            found[name] = value
    return found


def monitor_address(mon: Mapping[str, Any]) -> str:
    """Return a monitor's addresses, from ``mon dump``, in the syntax of ``mon_host``.

    Before Nautilus a monitor has one address, ``10.0.0.1:6789/0``; the last number is that of its process.
    """
    if "public_addrs" not in mon:
        return str(mon["addr"]).partition("/")[0]
    return "[" + ",".join(f"{a['type']}:{a['addr']}" for a in mon["public_addrs"]["addrvec"]) + "]"


def stored_nbytes(stats: Mapping[str, Any]) -> int:
    """Return the bytes that clients stored, from a pool's ``stats`` in ``df`` (``bytes_used`` before Nautilus)."""
    return int(stats.get("stored", stats.get("bytes_used", 0)))


def why_no_cache_drop(admin: CephAdmin) -> str:
    """Return why OSDs cannot drop their caches by command; empty if they can. Changes nothing."""
    version = str(admin.command("version")["version"]).split()
    osds = admin.command("osd ls")
    if len(version) < 3 or not is_before_nautilus(version[2]) or not osds:
        return ""
    commands = admin.tell(f"osd.{osds[0]}", "get_command_descriptions").values()
    words = [[part for part in command["sig"] if isinstance(part, str)] for command in commands]
    return "" if ["cache", "drop"] in words else f"OSDs of Ceph {version[2]} do not have the command `cache drop`"


def listed_pgs(reported: Any) -> Sequence[Mapping[str, Any]] | None:
    """Return the PGs of ``pg ls``, ``pg ls-by-pool`` or ``pg ls-by-osd``; None if the manager does not know them.

    Before Nautilus the answer is the list itself (``PGMap::dump_filtered_pg_stats``), and empty where there is no
    PG. Since then it states whether the manager knows them (``pg_ready``); after a change of the map it does not
    for some seconds.
    """
    if isinstance(reported, list) or reported is None:
        return reported or ()
    return reported.get("pg_stats", ()) if reported.get("pg_ready", True) else None

"""What is other before Nautilus (14.2): answers of another shape, arguments of other names, and what is lacking.

By Ceph's sources of 12.2 and 13.2 (MonCommands.h, MonMap.cc, PGMap.cc); tried on no cluster of that age.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin

_OLDEST = 12
_NAUTILUS = 14


def require_luminous(version: str, *, where: str) -> None:
    """Raises:
    ClusterError: the cluster is older than Luminous.
    """
    if _major(version) < _OLDEST:
        raise ClusterError(
            f"this cluster runs Ceph {version}, whose monitors and daemons do not tell what cephfit has to know",
            where=where,
            remedy="it works on Luminous (12.2) and later",
        )


def is_before_nautilus(version: str) -> bool:
    """Whether a release, such as ``13.2.10``, has the shapes of this module."""
    return _major(version) < _NAUTILUS


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else _NAUTILUS


def as_before_nautilus(prefix: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """A command's arguments as monitors before Nautilus take them.

    Confirmations were choices of one word, ``force`` of ``osd pool set`` and ``sure`` of others; pools had no
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
    """Where a monitor of ``mon dump`` listens, as ``mon_host`` in a ceph.conf takes it.

    Before Nautilus a monitor has one address, ``10.0.0.1:6789/0``; the last number is that of its process.
    """
    if "public_addrs" not in mon:
        return str(mon["addr"]).partition("/")[0]
    return "[" + ",".join(f"{a['type']}:{a['addr']}" for a in mon["public_addrs"]["addrvec"]) + "]"


def stored_nbytes(stats: Mapping[str, Any]) -> int:
    """What clients wrote into a pool, of its ``stats`` in ``df``; before Nautilus ``bytes_used`` was just that."""
    return int(stats.get("stored", stats.get("bytes_used", 0)))


def why_no_cache_drop(admin: CephAdmin) -> str:
    """Why OSDs cannot be told to drop their caches; empty if they can. Changes nothing."""
    version = str(admin.command("version")["version"]).split()
    osds = admin.command("osd ls")
    if len(version) < 3 or not is_before_nautilus(version[2]) or not osds:
        return ""
    commands = admin.tell(f"osd.{osds[0]}", "get_command_descriptions").values()
    words = [[part for part in command["sig"] if isinstance(part, str)] for command in commands]
    return "" if ["cache", "drop"] in words else f"OSDs of Ceph {version[2]} know no command `cache drop`"


def listed_pgs(said: Any) -> Sequence[Mapping[str, Any]] | None:
    """The PGs of an answer to ``pg ls``, ``pg ls-by-pool`` or ``pg ls-by-osd``; None: the manager does not know.

    Before Nautilus the answer is the list itself (``PGMap::dump_filtered_pg_stats``), and nothing at all where
    there is no PG. Since then it says whether the manager knows (``pg_ready``); for some seconds after a change of
    the map it does not.
    """
    if isinstance(said, list) or said is None:
        return said or ()
    return said.get("pg_stats", ()) if said.get("pg_ready", True) else None

"""Ways in which options are delivered to the daemons of a cluster."""

from dataclasses import dataclass
from enum import StrEnum

from cephfit.core.errors import InputError
from cephfit.core.yaml_lines import nearest

_FIRST_WITH_STORE = 13
"""Mimic (13.2): the first release with a config store in the monitors."""
CONF_PATH = "/etc/ceph/ceph.conf"
"""Path for daemons from packages; each containerized daemon has a separate file."""


class DeliveryWay(StrEnum):
    """How options of the partition ``ceph`` are delivered to daemons."""

    STORE = "store"
    """The monitors' config store."""
    CONF = "conf"
    """The ceph.conf of the daemons' hosts, and a restart of the affected OSDs."""
    INJECTARGS = "injectargs"
    """Directly into the running daemons."""


_WORDS = ("settings", "osd_conf")
"""Keys in a target's text."""


@dataclass(frozen=True, slots=True)
class OptionDelivery:
    """The user's choice of the delivery.

    Attributes:
        way: None chooses by the release: the store where there is one; before it, injectargs for options that
            act at run time and ceph.conf for the others.
        conf_path: of the daemons' ceph.conf on their hosts; ``$id`` and ``$name`` in it are replaced by ``3`` and
            ``osd.3``.
    """

    way: DeliveryWay | None = None
    conf_path: str = CONF_PATH

    def way_of(self, version: str, *, acts_at_runtime: bool) -> DeliveryWay:
        """Return the way of one option.

        Args:
            version: of the cluster, such as ``16.2.15``.
            acts_at_runtime: whether running daemons act on a change of it.
        """
        if self.way is not None:
            return self.way
        if has_store(version):
            return DeliveryWay.STORE
        return DeliveryWay.INJECTARGS if acts_at_runtime else DeliveryWay.CONF


def has_store(version: str) -> bool:
    """Return whether the monitors of a release have a config store. Firefly to Hammer were 0.80 to 0.94."""
    major = version.partition(".")[0]
    return not major.isdigit() or int(major) >= _FIRST_WITH_STORE


def parse_delivery(text: str, *, where: str, own_conf: bool = False) -> OptionDelivery:
    """Parse ``settings=conf,osd_conf=/etc/ceph/ceph.conf``; empty text chooses by the release.

    Args:
        text: part of a target's text.
        where: its place, for errors.
        own_conf: whether cephfit created the cluster and knows its ceph.conf.

    Raises:
        InputError: quotes the wrong word.
    """
    given: dict[str, str] = {}
    for word in text.split(",") if text else ():
        key, is_pair, value = word.partition("=")
        if key not in _WORDS or not is_pair or not value:
            remedy = nearest(key, _WORDS) or f"there are {' and '.join(f'{w}=...' for w in _WORDS)}"
            raise InputError(f"unknown word {word!r} in the target", where=where, remedy=remedy)
        if key in given:
            raise InputError(f"{key} is given twice", where=where, remedy="give it once")
        given[key] = value
    ways = [way.value for way in DeliveryWay]
    way = given.get("settings")
    if way is not None and way not in ways:
        raise InputError(
            f"settings={way} is not a known way", where=where, remedy=f"choose from: {', '.join(ways)}"
        )
    path = given.get("osd_conf", CONF_PATH)
    if not path.startswith("/"):
        raise InputError(
            f"osd_conf={path} is not an absolute path",
            where=where,
            remedy="write it like osd_conf=/etc/ceph/ceph.conf",
        )
    if "osd_conf" in given and own_conf:
        raise InputError("osd_conf applies to --target ceph only", where=where, remedy="remove it for a lab")
    if "osd_conf" in given and way in ("store", "injectargs"):
        raise InputError(f"settings={way} does not use osd_conf", where=where, remedy="remove one of them")
    return OptionDelivery(None if way is None else DeliveryWay(way), path)

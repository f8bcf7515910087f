"""Settings and configurations."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

DEFAULT_CONFIGURATION = "A"
"""Name of the default configuration, with which all others are compared (the thesis's name)."""

Value = str | int | float | bool


class Partition(StrEnum):
    """The partition of a setting (Meyer 2017, section 2.4)."""

    POOL = "pool"
    """The functional component: size, pg_num, CRUSH rule, striping, compression."""
    CEPH = "ceph"
    """The Ceph environment: every daemon and client option."""
    GREATER = "greater"
    """The greater Ceph environment: OSD disks and their scheduler, object store, network, guest."""


def as_yaml(value: object) -> str:
    """Format a value as YAML and Ceph do: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One key = value in one scope.

    Attributes:
        partition: what the setting belongs to.
        scope: pool: ``pool``, ``image`` or ``volume`` (of Cinder); ceph: the section (``global``, ``osd``,
            ``mon``, ``mgr``, ``client``, or a masked one such as ``osd/class:hdd``); greater: one of
            ``ceph/environment/scopes.py``.
        key: the option's name as Ceph or the kernel spells it.
        value: as written in the sweep file.
    """

    partition: Partition
    scope: str
    key: str
    value: Value

    def __str__(self) -> str:
        return f"{self.partition}/{self.scope}/{self.key} = {self.value}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A named set of settings; the one without settings is the default.

    Attributes:
        name: short, as reports show it.
        settings: sorted, no two of the same partition, scope and key.
        why: one sentence for readers of the report; may be empty.
    """

    name: str
    settings: tuple[Setting, ...] = ()
    why: str = ""

    def __post_init__(self) -> None:
        places = [(s.partition, s.scope, s.key) for s in self.settings]
        if len(set(places)) != len(places):
            raise ValueError(f"configuration {self.name!r} sets a key twice")

    def within(self, partition: Partition) -> Iterator[Setting]:
        """The settings of one partition."""
        return (s for s in self.settings if s.partition is partition)

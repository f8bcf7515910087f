"""One option of Ceph, as the running cluster describes it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_RECOVERY = re.compile(r"recover|backfill|scrub|snap_trim|rebalanc|osd_repair|osd_mclock|osd_max_pg_per_osd")


@dataclass(frozen=True, slots=True)
class Option:
    """One option as ``config help`` describes it.

    Attributes:
        name: Ceph's spelling.
        type: ``int``, ``uint``, ``size``, ``float``, ``bool``, ``str``, ``secs`` ...
        default: as Ceph gives it, of the daemons where they have another one.
        flags: ``runtime``, ``startup``, ``create`` ...
        services: who reads it, as far as Ceph says.
        can_update_at_runtime: whether the value of a running daemon changes at all.
        level: ``basic``, ``advanced`` or ``dev``: for whom Ceph's developers made it.
        description: one line; may be empty.
        more: the long description; may be empty.
        least: smallest value; empty where Ceph names none.
        most: largest value; empty where Ceph names none.
        choices: the words it takes; empty where it is not a choice among words.
        see_also: names of related options.
    """

    name: str
    type: str
    default: Any
    flags: tuple[str, ...]
    services: tuple[str, ...]
    can_update_at_runtime: bool
    level: str = "advanced"
    description: str = ""
    more: str = ""
    least: str = ""
    most: str = ""
    choices: tuple[str, ...] = field(default=())
    see_also: tuple[str, ...] = field(default=())

    @classmethod
    def from_help(cls, said: Mapping[str, Any]) -> "Option":
        """From the answer to ``config help``; older releases leave some of its keys out."""
        daemon_default = said.get("daemon_default")
        return cls(
            name=said["name"],
            type=said["type"],
            default=said["default"] if daemon_default in (None, "") else daemon_default,
            flags=tuple(said.get("flags", ())),
            services=tuple(said.get("services", ())),
            can_update_at_runtime=bool(said.get("can_update_at_runtime", False)),
            level=said.get("level", "advanced"),
            description=said.get("desc", "").strip(),
            more=" ".join(said.get("long_desc", "").split()),
            least=str(said.get("min", "")),
            most=str(said.get("max", "")),
            choices=tuple(said.get("enum_values", ())),
            see_also=tuple(said.get("see_also", ())),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Option":
        """The inverse of ``to_json``."""
        lists = ("flags", "services", "choices", "see_also")
        fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in document.items()}
        return cls(**fields)

    @property
    def acts_at_runtime(self) -> bool:
        """Whether a running daemon acts on a change.

        ``can_update_at_runtime`` is true of every number and every bool: the value changes, but code that read
        it once at its start (``bluestore_cache_size``) goes on as before. Only options flagged ``runtime`` are
        watched or read anew; the others need a restart, though a read-back would look right without one.
        """
        return "runtime" in self.flags

    @property
    def acts_at_creation_only(self) -> bool:
        """Whether only a newly made OSD or cluster reads it (``bluestore_min_alloc_size``)."""
        return "create" in self.flags or "cluster_create" in self.flags

    @property
    def takes_effect(self) -> str:
        """When a change does: ``at once``, ``restart`` or ``creation``."""
        if self.acts_at_creation_only:
            return "creation"
        return "at once" if self.acts_at_runtime else "restart"

    @property
    def affects_recovery(self) -> bool:
        """Whether it is about recovery, backfill, scrubbing or trimming: the work beside that of clients."""
        return bool(_RECOVERY.search(self.name))

"""A CRUSH map as it is: its binary, its text, and what crushtool says of its structure."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cephfit.sweep.crush import programs

_DERIVED = ("profile", "optimal_tunables", "legacy_tunables", "minimum_required_version", "has_", "require_")
"""Entries of a dump's tunables that follow from the rest of the map."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of the tree (shadow trees of device classes have names with ``~`` in them).

    Attributes:
        id: negative.
        name: unique in the map.
        type: name of its type, such as ``host``.
        alg: ``straw``, ``straw2``, ``uniform``, ``list``, ``tree``.
        items: ids of what is in it to weight in 1/65536; OSDs from 0, buckets below.
    """

    id: int
    name: str
    type: str
    alg: str
    items: Mapping[int, int]


class LiveMap:
    """A compiled CRUSH map and its reading. Immutable.

    Raises:
        MapRefusedError: it is no CRUSH map.
    """

    def __init__(self, binary: bytes) -> None:
        self.binary = binary
        self.text = programs.decompile(binary)
        self.document = programs.dump(binary)

    @classmethod
    def from_text(cls, text: str) -> "LiveMap":
        """Raises:
        MapRefusedError: it cannot be compiled.
        """
        return cls(programs.compile_map(text))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the map means; two encodings of one map have the same."""
        document = {**self.document, "tunables": self.tunables}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    @cached_property
    def tunables(self) -> dict[str, Any]:
        return {k: v for k, v in self.document["tunables"].items() if not k.startswith(_DERIVED)}

    @cached_property
    def needs(self) -> str:
        """The oldest release whose clients understand the map, such as ``jewel``; empty where not known."""
        return str(self.document["tunables"].get("minimum_required_version", ""))

    @cached_property
    def osd_names(self) -> dict[int, str]:
        return {d["id"]: d["name"] for d in self.document["devices"]}

    @cached_property
    def class_of(self) -> dict[int, str]:
        """Device class of each OSD that has one."""
        return {d["id"]: d["class"] for d in self.document["devices"] if d.get("class")}

    @cached_property
    def types(self) -> dict[str, int]:
        return {t["name"]: t["type_id"] for t in self.document["types"]}

    @cached_property
    def osd_type(self) -> str:
        """Name of type 0: ``osd``, or ``device`` in old maps."""
        return next(name for name, number in self.types.items() if number == 0)

    @cached_property
    def buckets(self) -> dict[str, Bucket]:
        """By name, without the shadow trees."""
        return {b.name: b for b in self._all_buckets() if "~" not in b.name}

    @cached_property
    def rules(self) -> dict[str, int]:
        """Rule name to id."""
        return {r["rule_name"]: r["rule_id"] for r in self.document["rules"]}

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Buckets that are in no other."""
        held = {item for bucket in self.buckets.values() for item in bucket.items}
        return tuple(b.name for b in self.buckets.values() if b.id not in held)

    @cached_property
    def default_root(self) -> str:
        """``default`` where there is such a bucket; else the only root; else empty."""
        if "default" in self.buckets:
            return "default"
        return self.roots[0] if len(self.roots) == 1 else ""

    @cached_property
    def used_ids(self) -> frozenset[int]:
        """Ids of all buckets, shadows too."""
        return frozenset(b.id for b in self._all_buckets())

    def osds_under(self, name: str) -> dict[int, int]:
        """OSDs in a bucket at any depth, with their weight in 1/65536."""
        found: dict[int, int] = {}
        waiting = [self.buckets[name]]
        while waiting:
            for item, weight in waiting.pop().items.items():
                if item >= 0:
                    found[item] = weight
                else:
                    waiting.append(self._by_id[item])
        return found

    def above(self, osd: int, type_name: str) -> str:
        """The bucket of a type that an OSD is in; the first made where it is in several; empty if none."""
        if type_name == self.osd_type:
            return self.osd_names.get(osd, "")
        for bucket in self.buckets.values():
            if bucket.type == type_name and osd in self.osds_under(bucket.name):
                return bucket.name
        return ""

    @cached_property
    def _by_id(self) -> dict[int, Bucket]:
        return {b.id: b for b in self.buckets.values()}

    def _all_buckets(self) -> Iterator[Bucket]:
        for b in sorted(self.document["buckets"], key=lambda b: -b["id"]):
            items = {item["id"]: item["weight"] for item in b["items"]}
            yield Bucket(b["id"], b["name"], b["type_name"], b["alg"], items)

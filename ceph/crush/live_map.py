"""A cluster's CRUSH map, read with the offline programs crushtool and osdmaptool.

One function runs one query of a program; none of them contacts a cluster. ``CrushMap`` holds the map's binary, its
text and its structure as crushtool reports it.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cephfit.core.errors import ClusterError, HostError

NOWHERE = 0x7FFFFFFF
"""CRUSH_ITEM_NONE (Ceph's src/crush/crush.h): a position of an erasure-coded PG without an OSD."""

_SECONDS = 120.0
_MOST_MOVES = "100"
_MAPPING = re.compile(r"^CRUSH rule \d+ x (\d+) \[([\d,]*)\]$", re.MULTILINE)
_BAD = re.compile(r"^bad mapping rule \d+ x (\d+) num_rep \d+ result ", re.MULTILINE)
_OUR_FILE = re.compile(r"'?[^\s']*/cephfit-crush-\w+/\w+'?")
_PG = re.compile(r"^(\d+\.[0-9a-f]+)\t\[([\d,]*)\]", re.MULTILINE)


_READS = "osdmaptool: osdmap file "
"""In a line that only names the file."""
_REMEDY = "the cluster is newer than this machine's ceph-base; install that of the cluster's release"


class MapRefusedError(ClusterError):
    """crushtool or osdmaptool cannot read or create a map; the message is the program's."""


class NewerMapError(MapRefusedError):
    """The map is of a newer release than osdmaptool or crushtool: osdmaptool 16.2 cannot read a map of 20.2.4."""


def decompile(binary: bytes) -> str:
    """Decompile a CRUSH map to text.

    Raises:
        MapRefusedError: it is not a CRUSH map.
    """
    with _files(map=binary) as at:
        return _run("crushtool", "-d", str(at["map"])).stdout


def compile_map(text: str) -> bytes:
    """Compile a CRUSH map's text.

    Raises:
        MapRefusedError: it cannot be compiled; the message is crushtool's.
    """
    with _files(text=text.encode()) as at:
        out = at["text"].with_name("compiled")
        # The owner of a live map chooses its tunables: crushtool rejects those of Argonaut as unsafe.
        _run("crushtool", "-c", str(at["text"]), "-o", str(out), "--enable-unsafe-tunables")
        return out.read_bytes()


def dump(binary: bytes) -> dict[str, Any]:
    """Return a compiled CRUSH map as crushtool's JSON; weights are in 1/65536."""
    with _files(map=binary) as at:
        document: dict[str, Any] = json.loads(
            _run("crushtool", "-i", str(at["map"]), "--dump", "-f", "json").stdout
        )
        return document


def try_rule(
    binary: bytes,
    rule: int,
    *,
    size: int,
    n_inputs: int,
    pool: int | None = None,
    in_weights: Mapping[int, float] | None = None,
) -> tuple[dict[int, tuple[int, ...]], frozenset[int]]:
    """Map inputs by a rule, and find the inputs that get too few OSDs.

    Args:
        binary: compiled map.
        rule: id.
        size: OSDs required per input.
        n_inputs: inputs 0 to n - 1.
        pool: id of a pool; input x then maps exactly like PG x of that pool (with ``hashpspool``, the default
            since Firefly) if ``n_inputs`` is at most its pgp_num.
        in_weights: OSDs that are not fully in (``ceph osd reweight``), 0 to 1.

    Returns:
        Input to OSDs, with ``NOWHERE`` for holes; inputs with fewer than ``size`` OSDs.
    """
    argv = ["--test", "--rule", str(rule), "--num-rep", str(size), "--min-x", "0", "--max-x", str(n_inputs - 1)]
    argv += ["--show-mappings", "--show-bad-mappings"]
    argv += ["--pool-id", str(pool)] if pool is not None else []
    for osd, weight in (in_weights or {}).items():
        argv += ["--weight", str(osd), f"{weight:.6f}"]
    with _files(map=binary) as at:
        reported = _run("crushtool", "-i", str(at["map"]), *argv).stdout
    places = {int(x): _osds(osds) for x, osds in _MAPPING.findall(reported)}
    return places, frozenset(int(x) for x in _BAD.findall(reported))


def map_pgs(osd_map: bytes, crush_map: bytes | None = None) -> dict[str, tuple[int, ...]]:
    """Return PG id to its OSDs by an OSD map, for all pools, without temporary mappings.

    Args:
        osd_map: from ``ceph osd getmap``.
        crush_map: replaces the one in ``osd_map``.

    Raises:
        NewerMapError: this machine's osdmaptool is older than the cluster.
        MapRefusedError: osdmaptool failed.
    """
    with _files(osdmap=osd_map, crush=crush_map or b"") as at:
        if crush_map is not None:
            _run("osdmaptool", str(at["osdmap"]), "--import-crush", str(at["crush"]))
        return pgs_in(_run("osdmaptool", str(at["osdmap"]), "--clear-temp", "--test-map-pgs-dump").stdout)


def balancing_moves(osd_map: bytes, pool: str) -> int:
    """Count the upmap entries that would balance a pool's PGs to within one PG per OSD, by osdmaptool.

    Raises:
        NewerMapError: this machine's osdmaptool is older than the cluster.
        MapRefusedError: osdmaptool failed.
    """
    with _files(osdmap=osd_map) as at:
        moves = at["osdmap"].with_name("moves")
        argv = ["--upmap", str(moves), "--upmap-pool", pool, "--upmap-deviation", "1", "--upmap-max", _MOST_MOVES]
        _run("osdmaptool", str(at["osdmap"]), *argv)
        return len(moves.read_text().splitlines()) if moves.exists() else 0


def pgs_in(reported: str) -> dict[str, tuple[int, ...]]:
    """Parse PG to OSDs from the output of ``osdmaptool --test-map-pgs-dump``."""
    return {pg: _osds(osds) for pg, osds in _PG.findall(reported)}


def _osds(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


@contextmanager
def _files(**contents: bytes) -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory(prefix="cephfit-crush-") as folder:
        at = {}
        for name, content in contents.items():
            at[name] = Path(folder, name)
            at[name].write_bytes(content)
        yield at


def _run(program: str, *argv: str) -> subprocess.CompletedProcess[str]:
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise HostError(f"there is no `{program}` program", remedy="install the package ceph-base")
    # Some faults of a text make crushtool abort; keep its crash report out of the system's folder.
    with tempfile.TemporaryDirectory(prefix="cephfit-crush-") as crashes:
        environment = {**os.environ, "CEPH_ARGS": f"--crash-dir={crashes} --no-mon-config"}
        try:
            done = subprocess.run(
                (path, *argv), capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment
            )
        except subprocess.TimeoutExpired:
            raise MapRefusedError(f"{program} did not end in {_SECONDS:.0f} s", where=program) from None
    if done.returncode:
        words = _first_words(done.stderr or done.stdout, done.returncode)
        if "error decoding" in done.stderr:
            raise NewerMapError(words, where=program, remedy=_REMEDY)
        raise MapRefusedError(words, where=program)
    return done


def _first_words(reported: str, code: int) -> str:
    lines: Sequence[str] = [line.strip() for line in reported.splitlines() if line.strip()]
    own = [
        _OUR_FILE.sub("the map", line)
        for line in lines
        if not line.startswith(("./src", "*** ")) and _READS not in line
    ]
    own.sort(key=lambda line: "WARNING" in line)  # Reef warns of rules' sizes before it says what is wrong
    return own[0] if own else f"ended with {code}"


_DERIVED = ("profile", "optimal_tunables", "legacy_tunables", "minimum_required_version", "has_", "require_")
"""Tunables of a dump that are derived from the rest of the map."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of the tree; names in shadow trees of device classes contain ``~``.

    Attributes:
        id: negative.
        name: unique in the map.
        type: such as ``host``.
        alg: ``straw``, ``straw2``, ``uniform``, ``list``, ``tree``.
        items: id of each child to weight in 1/65536; OSD ids are 0 or more, bucket ids negative.
    """

    id: int
    name: str
    type: str
    alg: str
    items: Mapping[int, int]


class LiveMap:
    """A compiled CRUSH map and its decoded form. Immutable.

    Raises:
        MapRefusedError: it is not a CRUSH map.
    """

    def __init__(self, binary: bytes) -> None:
        self.binary = binary
        self.text = decompile(binary)
        self.document = dump(binary)

    @classmethod
    def from_text(cls, text: str) -> "LiveMap":
        """Compile a map from text.

        Raises:
            MapRefusedError: it cannot be compiled.
        """
        return cls(compile_map(text))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the map's content; two encodings of one map have the same digest."""
        document = {**self.document, "tunables": self.tunables}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    @cached_property
    def tunables(self) -> dict[str, Any]:
        return {k: v for k, v in self.document["tunables"].items() if not k.startswith(_DERIVED)}

    @cached_property
    def needs(self) -> str:
        """The oldest client release that supports the map, such as ``jewel``; empty where unknown."""
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
        """Buckets by name, without the shadow trees."""
        return {b.name: b for b in self._all_buckets() if "~" not in b.name}

    @cached_property
    def rules(self) -> dict[str, int]:
        """Rule name to id."""
        return {r["rule_name"]: r["rule_id"] for r in self.document["rules"]}

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Buckets without a parent."""
        held = {item for bucket in self.buckets.values() for item in bucket.items}
        return tuple(b.name for b in self.buckets.values() if b.id not in held)

    @cached_property
    def default_root(self) -> str:
        """``default`` if there is such a bucket; else the only root; else empty."""
        if "default" in self.buckets:
            return "default"
        return self.roots[0] if len(self.roots) == 1 else ""

    @cached_property
    def used_ids(self) -> frozenset[int]:
        """Ids of all buckets, including shadow trees."""
        return frozenset(b.id for b in self._all_buckets())

    def osds_under(self, name: str) -> dict[int, int]:
        """Return the OSDs in a bucket at any depth, with their weight in 1/65536."""
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
        """Return the bucket of a type that contains an OSD: the first created of several; empty if none."""
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

"""The text of a decompiled CRUSH map: insert and remove parts, keep every other line.

The text has only three decimals of each weight (five since Quincy). A map that is decompiled and compiled again
would have other weights and move data. ``exact`` therefore writes every weight in full from the binary.
"""

import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

_BLOCK = re.compile(r"^(\S+)\s+(\S+)\s*\{")
_ITEM = re.compile(r"^(\s+item\s+)(\S+)(\s+weight\s+)[\d.]+(.*)$")
_BUCKET_ID = re.compile(r"^\s*bucket_id\s+(-\d+)")
_WEIGHTS = re.compile(r"^(\s*)\[\s*[\d.]+[\d.\s]*\]\s*$")
_SUM = re.compile(r"^\s*# weight [\d.]+$")
_DEVICE = re.compile(r"^device\s+(\d+)\s")
_NO_POOL = 2**64 - 1
"""Spelling of -1 in a text: the weight set that all pools share."""


def exact(text: str, document: Mapping[str, Any]) -> str:
    """Return the text with every weight in full, and with devices that are in buckets but not declared.

    Args:
        text: decompiled map.
        document: crushtool's JSON of the same map.
    """
    names = {d["id"]: d["name"] for d in document["devices"]}
    names |= {b["id"]: b["name"] for b in document["buckets"]}
    weights = {
        (b["name"], names.get(item["id"], "")): item["weight"] for b in document["buckets"] for item in b["items"]
    }
    sets = {
        (_key(key), entry["bucket_id"]): [list(row) for row in entry["weight_set"]]
        for key, entries in document.get("choose_args", {}).items()
        for entry in entries
        if "weight_set" in entry
    }
    lines, block, bucket_id = [], ("", ""), 0
    for line in text.splitlines():
        if found := _BLOCK.match(line):
            block = (found[1], found[2])
        elif line.startswith("}"):
            block = ("", "")
        elif found := _BUCKET_ID.match(line):
            bucket_id = int(found[1])
        elif found := _ITEM.match(line):
            weight = weights.get((block[1], found[2]))
            line = line if weight is None else f"{found[1]}{found[2]}{found[3]}{in_full(weight)}{found[4]}"
        elif (found := _WEIGHTS.match(line)) and block[0] == "choose_args":
            rows = sets.get((_key(block[1]), bucket_id))
            if rows:
                numbers = " ".join(in_full(round(weight * 0x10000)) for weight in rows.pop(0))
                line = f"{found[1]}[ {numbers} ]"
        lines.append(line)
    return "\n".join(_with_devices(lines, document)) + "\n"


def append(text: str, *, buckets: Iterable[str], rules: Iterable[str]) -> str:
    """Return the text with new buckets after its last bucket and new rules after its last rule.

    crushtool requires all buckets before the first rule, and weight sets (``choose_args``) last.
    """
    lines = text.splitlines()
    ends = {"bucket": 0, "rule": 0}
    inside = ""
    for number, line in enumerate(lines):
        if found := _BLOCK.match(line):
            inside = found[1] if found[1] in ("rule", "choose_args") else "bucket"
        elif line.startswith("}") and inside in ends:
            ends[inside] = number + 1
    first_rule = ends["rule"] or ends["bucket"]
    lines[first_rule:first_rule] = [line for part in rules for line in part.splitlines()]
    lines[ends["bucket"] : ends["bucket"]] = [line for part in buckets for line in part.splitlines()]
    return "\n".join(lines) + "\n"


def without(text: str, names: Iterable[str]) -> str:
    """Return the text without these buckets and rules, and without the weight sets of those buckets."""
    gone = set(names)
    lines = text.splitlines()
    ids = {
        int(word)
        for block, body in _blocks(lines)
        if block[1] in gone and block[0] != "rule"
        for line in body
        for word in re.findall(r"^\s+id\s+(-\d+)", line)
    }
    kept: list[str] = []
    for block, body in _blocks(lines):
        if block[0] == "choose_args":
            kept += _without_ids(body, ids)
        elif block[1] not in gone:
            kept += body
    return "\n".join(kept) + "\n"


def rule_texts(text: str, names: Collection[str]) -> list[str]:
    """Return the text of each of these rules that is in a map, in the map's order."""
    blocks = _blocks(text.splitlines())
    return ["\n".join(body) for block, body in blocks if block[0] == "rule" and block[1] in names]


def added_lines(before: str, after: str) -> Sequence[str] | None:
    """Return the lines that ``after`` adds to ``before``; None if a line of ``before`` is missing or moved."""
    added = []
    old = iter([*before.splitlines(), None])
    expected = next(old)
    for line in after.splitlines():
        # A bucket's weight is a comment: crushtool computes it from the items, which it may have rounded.
        if line == expected or (expected and _SUM.match(line) and _SUM.match(expected)):
            expected = next(old)
        else:
            added.append(line)
    return added if expected is None else None


def has_ruleset(text: str) -> bool:
    """Return whether the text's rules have a ``ruleset`` (before Luminous) instead of an ``id``."""
    return bool(re.search(r"^\s+ruleset\s+\d+", text, re.MULTILINE))


def has_sizes(text: str) -> bool:
    """Return whether its rules have ``min_size`` and ``max_size`` (before Quincy), or it has no rules yet."""
    return "\nrule " not in text or bool(re.search(r"^\s+min_size\s+\d+", text, re.MULTILINE))


def _blocks(lines: Sequence[str]) -> list[tuple[tuple[str, str], list[str]]]:
    """Split into runs of lines: blocks with their first two words, and the lines between (two empty words)."""
    runs: list[tuple[tuple[str, str], list[str]]] = [(("", ""), [])]
    for line in lines:
        if found := _BLOCK.match(line):
            runs.append(((found[1], found[2]), []))
        runs[-1][1].append(line)
        if line.startswith("}"):
            runs.append((("", ""), []))
    return runs


def _without_ids(body: Sequence[str], ids: set[int]) -> list[str]:
    kept: list[str] = []
    entry: list[str] = []
    for line in body:
        if line.startswith("  {"):
            entry = [line]
        elif entry:
            entry.append(line)
            if line.startswith("  }"):
                found = next((m for e in entry if (m := _BUCKET_ID.match(e))), None)
                kept += [] if found and int(found[1]) in ids else entry
                entry = []
        else:
            kept.append(line)
    return kept


def _with_devices(lines: Sequence[str], document: Mapping[str, Any]) -> list[str]:
    """Declare devices without a name: a map's buckets contain them, but its text does not declare them."""
    declared = {int(found[1]) for line in lines if (found := _DEVICE.match(line))}
    held = {item["id"] for b in document["buckets"] for item in b["items"] if item["id"] >= 0}
    names = {d["id"]: d["name"] for d in document["devices"]}
    missing = [f"device {osd} {names.get(osd, f'device{osd}')}" for osd in sorted(held - declared)]
    at = next((n for n, line in enumerate(lines) if line.startswith("type ")), len(lines))
    while missing and at > 0 and (not lines[at - 1].strip() or lines[at - 1].startswith("# types")):
        at -= 1
    return [*lines[:at], *missing, *lines[at:]]


def _key(word: str) -> int:
    """Return a weight set's pool; -1 means all pools."""
    number = int(word)
    return -1 if number == _NO_POOL else number


def parsed(weight: int) -> int:
    """Return a weight in 1/65536 as crushtool gives it back after compiling its full text.

    crushtool parses weights as 32-bit floats (Ceph's src/crush/CrushCompiler.cc, ``float_node``), which hold 24
    bits: it rounds weights above 256, such as those of racks above 256 TiB.
    """
    (single,) = struct.unpack("f", struct.pack("f", weight / 0x10000))
    return int(single * 0x10000)


def parsed_bucket(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a bucket of crushtool's JSON with its weights as ``parsed``; the bucket's is the sum of its items."""
    items = [{**item, "weight": parsed(item["weight"])} for item in entry["items"]]
    rounding = sum(item["weight"] for item in items) - sum(item["weight"] for item in entry["items"])
    return {**entry, "weight": entry["weight"] + rounding, "items": items}


def parsed_weight_set(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of ``choose_args`` in crushtool's JSON with its weights, in whole units, as ``parsed``."""
    if "weight_set" not in entry:
        return dict(entry)
    rows = [[parsed(round(weight * 0x10000)) for weight in row] for row in entry["weight_set"]]
    return {**entry, "weight_set": rows}


def in_full(weight: int) -> str:
    """Format a 16.16 fixed-point number in full, with at least three decimals like crushtool."""
    text = format(Decimal(weight) / Decimal(0x10000), "f")
    whole, _, rest = text.partition(".")
    return f"{whole}.{rest.ljust(3, '0')}"

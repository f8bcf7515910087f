"""Where pools lie that state no placement: device classes of CRUSH rules, and the cluster's defaults for pools.

A target records them in the facts of a run, so that the price of the default pool is known afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.core.protocols import CephAdmin

LAYOUT = "layout"
"""Key of the facts of a run."""
_REPLICATED = 1


@dataclass(frozen=True, slots=True)
class RuleLayout:
    """The layout of pools without a declared placement.

    Attributes:
        default_rule: CRUSH rule of a pool that names none; empty if unknown.
        default_copies: of a replicated pool that does not set ``size``; None if unknown.
        classes: CRUSH rule to the device class of all copies, or to those of the first copy and of the others.
            Rules without a certain class are omitted.
    """

    default_rule: str = ""
    default_copies: int | None = None
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "default_rule": self.default_rule,
            "default_copies": self.default_copies,
            "classes": {rule: list(classes) for rule, classes in self.classes.items()},
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "RuleLayout":
        """Return the layout in the facts of a run; an empty one for runs of earlier versions and other targets."""
        found = facts.get(LAYOUT)
        if not isinstance(found, Mapping):
            return cls()
        copies, classes = found.get("default_copies"), found.get("classes") or {}
        return cls(
            str(found.get("default_rule") or ""),
            int(copies) if copies else None,
            {str(rule): tuple(map(str, its)) for rule, its in classes.items()},
        )

    def shares(self, rule: str, copies: int | None) -> dict[str, float] | None:
        """Return the bytes on disks by device class per byte of data; None if they are not certain.

        Args:
            rule: CRUSH rule; empty for the default.
            copies: of each object; None for the default.
        """
        classes, n = self.classes.get(rule or self.default_rule, ()), copies or self.default_copies
        if not classes or not n:
            return None
        shares = {classes[0]: 1.0 if len(classes) > 1 else float(n)}
        if len(classes) > 1:
            shares[classes[1]] = shares.get(classes[1], 0.0) + n - 1
        return shares


def read_layout(admin: CephAdmin, pool_defaults: Mapping[str, Any], only_pool: str = "") -> RuleLayout:
    """Read the layout of a cluster.

    Args:
        admin: of the cluster.
        pool_defaults: settings of pools where a configuration does not set them.
        only_pool: the pool that all configurations use; empty if each has its own.
    """
    try:
        rules: Sequence[Mapping[str, Any]] = admin.command("osd crush rule dump")
        nodes = admin.command("osd tree")["nodes"]
        default_rule, copies = str(pool_defaults.get("crush_rule", "")), pool_defaults.get("size")
        if only_pool:
            pool = next(p for p in admin.command("osd dump")["pools"] if p["pool_name"] == only_pool)
            default_rule = next((r["rule_name"] for r in rules if r["rule_id"] == pool["crush_rule"]), "")
            copies = None if pool.get("erasure_code_profile") else pool["size"]
        elif copies is None:
            copies = _default_copies(admin)
    except RefusedError:  # an early release, or a key with few capabilities
        return RuleLayout()
    if not default_rule and not only_pool:
        replicated = [r for r in rules if r["type"] == _REPLICATED]
        default_rule = min(replicated, key=lambda r: int(r["rule_id"]))["rule_name"] if replicated else ""
    every = {str(node.get("device_class", "")) for node in nodes if node["type"] == "osd"}
    classes = {r["rule_name"]: its for r in rules if (its := _classes(r["steps"], every))}
    return RuleLayout(default_rule, int(copies) if copies else None, classes)


def _default_copies(admin: CephAdmin) -> int | None:
    monitor = admin.command("mon dump")["mons"][0]["name"]
    shown = admin.command("config show", who=f"mon.{monitor}")
    return next((int(e["value"]) for e in shown if e["name"] == "osd_pool_default_size"), None)


def _classes(steps: Sequence[Mapping[str, Any]], every: set[str]) -> tuple[str, ...]:
    """Return the device classes that a rule takes; empty if they are not certain.

    Args:
        steps: of the rule, as ``osd crush rule dump`` has them.
        every: classes of all OSDs.
    """
    taken = [str(step["item_name"]).partition("~")[2] for step in steps if step["op"] == "take"]
    only = next(iter(every)) if len(every) == 1 else ""
    classes = tuple(one or only for one in taken)
    if not classes or not all(classes) or len(classes) > 2:
        return ()
    if len(classes) == 2:
        chosen = [int(step.get("num", 0)) for step in steps if str(step["op"]).startswith("choose")]
        return classes if chosen[:1] == [1] else ()
    return classes

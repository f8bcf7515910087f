"""What a file of declared pools comes to on a cluster, pool by pool, before anything is done. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit.sweep.crush.proposal import Proposal
from cephfit.sweep.crush.trial import Movement
from cephfit.sweep.pools.pool_plan import PoolPlan, Role

CODE = "erasure."
"""Before the keys of a pool's erasure code, among its values."""


@dataclass(frozen=True, slots=True)
class PoolChange:
    """One pool, as it is and as it shall be.

    Attributes:
        plan: what is wanted.
        state: ``new``; ``ours`` (made by us before); ``adopted`` (there before, and may be changed); ``theirs``
            (there before, and may not).
        values: key to value now and then, of those that differ; the value now is None where there is none.
        moved: data that these changes move.
    """

    plan: PoolPlan
    state: str
    values: Mapping[str, tuple[str | None, str]]
    moved: Movement

    def as_json(self) -> dict[str, Any]:
        return {
            "pool": self.plan.name,
            "role": self.plan.role.value,
            "state": self.state,
            "place": str(self.plan.placement) if self.plan.placement else self.plan.values.get("crush_rule", ""),
            "rule": self.plan.rule or self.plan.values.get("crush_rule", ""),
            "size": self.plan.size,
            "erasure": dict(self.plan.erasure),
            "values": {key: {"now": now, "then": then} for key, (now, then) in self.values.items()},
            "moved": self.moved.as_json(),
        }


@dataclass(frozen=True, slots=True)
class PoolsPlan:
    """What a file of pools comes to on a cluster.

    Attributes:
        changes: pool by pool.
        proposal: of the CRUSH map; None where no pool needs a rule of its own.
        faults: why it must not be applied.
        warnings: sentences for the person.
    """

    changes: tuple[PoolChange, ...]
    proposal: Proposal | None
    faults: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "pools": [change.as_json() for change in self.changes],
            "crush": self.proposal.as_json() if self.proposal else None,
            "faults": list(self.faults),
            "warnings": list(self.warnings),
        }


def faults_of(change: PoolChange) -> Sequence[str]:
    """Why a pool that is there must not be changed so."""
    plan = change.plan
    if code := {k: pair for k, pair in change.values.items() if k.startswith(CODE)}:
        said = ", ".join(f"{k.removeprefix(CODE)} = {now or 'none'}" for k, (now, _) in code.items())
        wanted = ", ".join(f"{k.removeprefix(CODE)} = {then}" for k, (_, then) in code.items())
        return [
            f"the erasure code of pool {plan.name} has {said}, not {wanted}: a pool keeps the code it was made "
            "with (declare another pool and copy the images)"
        ]
    if change.state == "theirs" and change.values:
        return [f"pool {plan.name} was there before and is not ours to change (say --adopt {plan.name})"]
    if change.state == "adopted" and (plan.erasure or plan.role is not Role.BASE):
        return [f"pool {plan.name} is there: it can get values and another place, not a code or a tier"]
    return []


def faults_together(changes: Sequence[PoolChange]) -> Sequence[str]:
    """Why the pools of one declaration (the pool, its data, its cache tier) must not be made and changed so."""
    foreign = [c.plan.name for c in changes if c.state in ("theirs", "adopted")]
    if not foreign or len(foreign) == len(changes):
        return []
    return [
        f"pool {', '.join(foreign)} was there before and is not ours: it can get values and another place, "
        "not a code or a tier"
    ]

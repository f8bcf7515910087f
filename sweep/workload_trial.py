"""How a real workload is run, and what must be alike for two runs of it to be compared."""

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.errors import InputError
from cephfit.measurement import CacheCondition
from cephfit.protocols import Target, Workload
from cephfit.sample import State, WorkloadSample
from cephfit.sweep.identity import CLUSTER

CONDITIONS = "trial"
"""Where a sample's evidence has them."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The workload of a verification and how it is run.

    Attributes:
        workload: what is run.
        volume_nbytes: size of its volume.
        repeats: runs per configuration.
        seconds: of each run.
        seed: of the order of configurations within each round, and of the workload's random choices.
        cache: what the caches of the cluster are before each run: dropped, or warm from one reading of the volume.
    """

    workload: Workload
    volume_nbytes: int
    repeats: int
    seconds: float
    seed: int
    cache: CacheCondition = CacheCondition.COLD


def conditions_of(target: Target, trial: Trial) -> dict[str, Any]:
    """What is stored with every sample: the workload and the cluster that it ran on. JSON values only."""
    return {
        "workload": dict(trial.workload.description()),
        "seconds": trial.seconds,
        "volume_nbytes": trial.volume_nbytes,
        "target": target.name,
        "cluster": target.facts().get(CLUSTER),
        # Left out where it is as it always was: runs from before there was a choice go on.
        **({"cache": trial.cache.value} if trial.cache is not CacheCondition.COLD else {}),
    }


def refuse_other_conditions(
    conditions: Mapping[str, Any], samples: Iterable[WorkloadSample], *, where: str
) -> None:
    """See that new samples can be compared with those that are there.

    Args:
        conditions: of the new ones.
        samples: of the same workload. Only those that are ``ok`` are compared with anything.
        where: they are, for the error.

    Raises:
        InputError: some were taken under other conditions; names these.
    """
    now = _flat(conditions)
    for sample in samples:
        if sample.state is not State.OK:
            continue
        earlier = _flat(sample.evidence.get(CONDITIONS) or {})
        other = [key for key in {**earlier, **now} if earlier.get(key) != now.get(key)]
        if other:
            differences = ", ".join(f"{key} was {_word(earlier, key)}, now {_word(now, key)}" for key in other)
            raise InputError(
                f"this run has been verified under other options or on another cluster: {differences}",
                where=where,
                remedy="give the same options (repeats may grow), or verify another run of the sweep",
            )


def contents_of(workload: Workload, purpose: str) -> str:
    """The note on a volume that says what lies on it.

    Args:
        workload: that prepared it.
        purpose: what it was prepared for: a volume that was run on for another purpose is not alike any more.
    """
    return json.dumps({"workload": dict(workload.description()), "for": purpose}, sort_keys=True)


def same_contents(note: str | None, contents: str) -> bool:
    """Whether a note says what ``contents_of`` says; also one of an earlier version."""
    if note is None or note == contents:
        return note == contents
    text, is_earlier, purpose = note.rpartition(" for ")
    return bool(is_earlier) and json.loads(contents) == {"workload": _described(text), "for": purpose}


def _described(stored: Any) -> Any:
    """A description as it is now; before they had a version, they were Python's own text of the options."""
    if not isinstance(stored, str):
        return stored
    try:
        call = ast.parse(stored, mode="eval").body
        if isinstance(call, ast.Call) and not call.args:
            return {"version": 1, **{str(word.arg): ast.literal_eval(word.value) for word in call.keywords}}
    except (SyntaxError, ValueError):
        pass
    return stored


def _flat(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Conditions with the workload's options among them, each under a name of its own."""
    described = _described(conditions.get("workload"))
    rest = {key: value for key, value in conditions.items() if key != "workload"}
    return {**({"workload": described} if not isinstance(described, Mapping) else described), **rest}


def _word(conditions: Mapping[str, Any], key: str) -> str:
    return str(conditions[key]) if key in conditions else "not said"

"""A trial: a real workload and how it is run, and the conditions under which its runs are comparable.

Two runs of a workload are comparable only under the same conditions. These are stored with every sample.
"""

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.protocols import Client, CountsOperations, Target, Workload
from cephfit.core.values.measurement import CacheCondition
from cephfit.core.values.sample import CLUSTER, State, WorkloadSample
from cephfit.sweep.concurrent_clients import ClientRates, Lockstep, Result

CONDITIONS = "trial"
"""Key of a sample's evidence that holds the conditions of its run."""
CLIENTS = "clients"
"""Key of the number of clients in the conditions, if there were several; in the evidence, of what each gave."""
OPERATIONS = "operations"
"""Key of the number of operations in the conditions, if runs end after these."""
TOGETHER = "together"
"""Key of a sample's evidence: share of the time in which all clients were measured; None if unknown."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The workload of a verification and how it is run.

    Attributes:
        workload: the workload to run.
        volume_nbytes: size of its volume.
        repeats: runs per configuration.
        seconds: duration of each run.
        seed: of the order of configurations within each round, and of the workload's random choices.
        cache: condition of the cluster's caches before each run: dropped, or warm after one read of the volume.
        n_clients: how many clients run the workload at once, each on its own volume.
        lockstep: keeps them in step; it is the workload's ``unmeasured``, if the workload has one.
        n_operations: of each run, instead of its seconds; None: as many as these allow; 0: not counted yet.
    """

    workload: Workload
    volume_nbytes: int
    repeats: int
    seconds: float
    seed: int
    cache: CacheCondition = CacheCondition.COLD
    n_clients: int = 1
    lockstep: Lockstep = field(default_factory=Lockstep)
    n_operations: int | None = None

    def run_on(self, client: Client, *, seed: int) -> Result:
        """Run the workload once on one client."""
        if self.n_operations is None:
            return self.workload.run(client, self.seconds, seed=seed)
        assert isinstance(self.workload, CountsOperations)
        return self.workload.run_operations(client, self.n_operations, self.seconds, seed=seed)

    @property
    def name(self) -> str:
        """Name under which samples are stored: that of the workload, and of several clients their number."""
        return self.workload.name if self.n_clients == 1 else f"{self.workload.name} x {self.n_clients}"


def conditions_of(target: Target, trial: Trial) -> dict[str, Any]:
    """Return the conditions that every sample stores: workload, target and cluster. JSON values only."""
    return {
        "workload": dict(trial.workload.description()),
        "seconds": trial.seconds,
        "volume_nbytes": trial.volume_nbytes,
        "target": target.name,
        "cluster": target.facts().get(CLUSTER),
        # Omitted where caches are cold: runs of versions that had only cold caches can continue.
        **({"cache": trial.cache.value} if trial.cache is not CacheCondition.COLD else {}),
        **({CLIENTS: trial.n_clients} if trial.n_clients > 1 else {}),
        **({OPERATIONS: trial.n_operations or "to be counted"} if trial.n_operations is not None else {}),
    }


def n_operations_of(samples: Iterable[WorkloadSample]) -> int | None:
    """Return after how many operations runs of the state ``ok`` ended; None if there is none, or after a time."""
    found = (sample.evidence.get(CONDITIONS) or {} for sample in samples if sample.state is State.OK)
    return next((int(conditions[OPERATIONS]) for conditions in found if OPERATIONS in conditions), None)


def n_clients_of(sample: WorkloadSample) -> int:
    """Return the number of clients that ran the workload at once."""
    return int((sample.evidence.get(CONDITIONS) or {}).get(CLIENTS, 1))


def measured_times(outputs: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Return when the measured time of each client began and ended, ns; empty if a workload does not state it."""
    times = [(o["started_ns"], o["finished_ns"]) for o in outputs if "started_ns" in o and "finished_ns" in o]
    return times if len(times) == len(outputs) else []


def longest_ns(times: Sequence[tuple[int, int]]) -> int:
    """Return the length of the longest of these times; 0 without any."""
    return max((end - start for start, end in times), default=0)


def together_share(outputs: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of the longest client's measured time in which all clients were measured, 0 to 1.

    None if a workload does not state its times (``started_ns``, ``finished_ns``), or takes none.
    """
    times = measured_times(outputs)
    longest = longest_ns(times)
    if longest <= 0:
        return None
    common = min(end for _, end in times) - max(start for start, _ in times)
    return max(0.0, float(common / longest))


def client_rates_of(sample: WorkloadSample) -> ClientRates | None:
    """Return the rates of the clients of a run; None if there was one client, or no result."""
    clients = sample.evidence.get(CLIENTS)
    return ClientRates.of([client["value"] for client in clients.values()]) if clients else None


def refuse_other_conditions(
    conditions: Mapping[str, Any], samples: Iterable[WorkloadSample], *, where: str
) -> None:
    """Check that new samples are comparable with the stored ones.

    Args:
        conditions: of the new samples.
        samples: stored samples of the same workload. Only those in the state ``ok`` count.
        where: place of the stored samples, for the error.

    Raises:
        InputError: some stored samples have other conditions; names the differences.
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
                f"this run was verified with other options or on another cluster: {differences}",
                where=where,
                remedy="use the same options (repeats may grow), or verify another run of the sweep",
            )


def contents_of(workload: Workload, purpose: str) -> str:
    """Return the note that describes the contents of a volume.

    Args:
        workload: the workload that prepared the volume.
        purpose: purpose of the preparation. Runs for another purpose have changed the volume, so they are not
            comparable.
    """
    return json.dumps({"workload": dict(workload.description()), "for": purpose}, sort_keys=True)


def same_contents(note: str | None, contents: str) -> bool:
    """Return whether a note describes these contents; reads notes of earlier versions too."""
    if note is None or note == contents:
        return note == contents
    text, is_earlier, purpose = note.rpartition(" for ")
    return bool(is_earlier) and json.loads(contents) == {"workload": _described(text), "for": purpose}


def _described(stored: Any) -> Any:
    """Return a description in the current format; unversioned ones are the ``repr`` of the options."""
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
    """Return conditions in which each option of the workload has its own key."""
    described = _described(conditions.get("workload"))
    rest = {key: value for key, value in conditions.items() if key != "workload"}
    return {**({"workload": described} if not isinstance(described, Mapping) else described), **rest}


def _word(conditions: Mapping[str, Any], key: str) -> str:
    return str(conditions[key]) if key in conditions else "not recorded"

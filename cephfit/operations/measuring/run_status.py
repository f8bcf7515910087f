"""A run as its store has it: its plan with all decisions so far, its progress, and what was measured.

The progress of a run needs neither SciPy nor its plan: `runs list` and the web page show that of many runs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import CephfitError
from cephfit.core.values.sample import MEASURING_DOCUMENT, STOPPING_DOCUMENT, TRIALS_DOCUMENT, Run, Sample, State
from cephfit.results.store.measuring_process import measuring_process
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.sweep_plan import Sweep, n_planned_samples, plan_of

if TYPE_CHECKING:
    from cephfit.sweep.optimiser import Trial


@dataclass(frozen=True, slots=True)
class Known:
    """A run's sweep with all decisions and trials so far.

    Attributes:
        sweep: with the configurations of trials.
        run: the run.
        trials: of an optimiser, in order.
        rounds: rounds of each configuration; one per repeat for those not named.
        stops: round after which the measurement of a cell ended.
        decisions: the stored document about decisions.
    """

    sweep: Sweep
    run: Run
    trials: "tuple[Trial, ...]"
    rounds: Mapping[str, range]
    stops: Mapping[Any, int]
    decisions: Mapping[str, Any] | None

    def stopping_document(self) -> dict[str, Any] | None:
        """Return what early stopping has saved so far; None for sweeps that measure all repeats."""
        if self.sweep.stopping is None:
            return None
        from cephfit.sweep.execution.rounds import saving_document

        saving = saving_document(plan_of(self.sweep), self.stops)
        decided = self.decisions or {"looks": 0, "stopped": [], "races": []}
        return {**self.sweep.stopping.to_json(), **saving, **decided}

    def trials_document(self, samples: Sequence[Sample]) -> list[dict[str, Any]] | None:
        """Return the trials and their results, the default of the same rounds = 100; None for other sweeps."""
        if self.sweep.search is None:
            return None
        from cephfit.operations.measuring.sweep_measurement import goal_of
        from cephfit.sweep.optimiser import values_of

        values = values_of(self.sweep, self.trials, samples, goal_of(None, None, resume=self.run))
        return [
            {
                "configuration": t.configuration.name,
                "batch": t.batch,
                "why": t.configuration.why,
                "relative": value,
            }
            for t, value in zip(self.trials, values, strict=True)
        ]


def known_of(store: Store, run: Run) -> Known:
    """Return everything that the store has about a run's plan."""
    from cephfit.sweep.execution.rounds import stops_of
    from cephfit.sweep.optimiser import rounds_by_name, trials_from_json, with_trials

    sweep = parse_sweep(run.sweep_text, file=run.run_id, stored=True)
    trials = trials_from_json(store.document(run.run_id, TRIALS_DOCUMENT))
    decisions = store.document(run.run_id, STOPPING_DOCUMENT)
    return Known(
        with_trials(sweep, trials),
        run,
        trials,
        rounds_by_name(sweep, trials) if sweep.search is not None else {},
        stops_of(decisions),
        decisions,
    )


@lru_cache(maxsize=64)
def _sweep_of(text: str) -> Sweep:
    """Return a stored sweep; most runs of a store have the same few."""
    return parse_sweep(text, file="stored sweep", stored=True)


def run_summary(store: Store, run: Run) -> dict[str, Any]:
    """Return the progress of a run, counted in samples, without reading them."""
    counts = store.counts(run.run_id)
    states: Counter[str] = Counter()
    for (_, state), n in counts.items():
        states[state.value] += n
    planned = None
    configurations = len({name for name, _ in counts})
    with suppress(CephfitError):  # a sweep file that this version cannot read: its samples are still listed
        sweep = _sweep_of(run.sweep_text)
        planned = n_planned_samples(sweep)
        trials = store.document(run.run_id, TRIALS_DOCUMENT) if sweep.is_search else None
        configurations = len(sweep.configurations) + len((trials or {}).get("trials", ()))
    measured = store.n_tried(run.run_id)
    process = measuring_process(store.document(run.run_id, MEASURING_DOCUMENT))
    return {
        "run": run.run_id,
        "sweep": run.sweep_name,
        "target": run.target,
        "begun_ns": run.created_ns,
        "finished": run.finished,
        "measured_by": None if process is None else str(process),
        "simulated": run.is_simulated,
        "imported": run.is_imported,
        "samples": {
            **{state.value: states[state.value] for state in State},
            "planned": measured if run.is_imported else planned,
            "measured": measured,
        },
        "configurations": configurations,
    }


def run_description(store: Store, run: Run) -> dict[str, Any]:
    """Return ``run_summary`` with the cluster, versions, configurations, and what is saved with the run."""
    counts = store.counts(run.run_id)
    settings: dict[str, list[str]] = {}
    with suppress(CephfitError):
        for one in known_of(store, run).sweep.configurations:
            settings[one.name] = [str(setting) for setting in one.settings]
    for name, _ in counts:
        settings.setdefault(name, [])
    saved = [kind for kind, _ in store.documents(run.run_id) if kind != MEASURING_DOCUMENT]
    workloads = Counter(workload for workload, _ in store.workload_samples(run.run_id))
    by_name: dict[str, dict[str, int]] = {name: {state.value: 0 for state in State} for name in settings}
    for (name, state), n in counts.items():
        by_name[name][state.value] = n
    facts = run.facts
    return {
        **run_summary(store, run),
        "seed": run.seed,
        "cluster": facts.get("fsid"),
        "versions": {k: facts[k] for k in facts if k in ("cephfit", "engine") or "version" in k},
        "configurations": [
            {"name": name, "settings": found, "samples": by_name[name]} for name, found in settings.items()
        ],
        "saved": dict(Counter(saved)),
        "workload_runs": dict(workloads),
    }

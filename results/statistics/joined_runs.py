"""Baselines of several runs of one cluster: further rounds, loads and cells that were measured later."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.run import Run, is_another_cluster
from cephfit.core.values.sample import OWN_LOAD
from cephfit.results.statistics.loads import LoadShape, shapes_of
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.store.sample_store import Store


def joined_baselines(store: Store, run: Run, others: Sequence[Run], load: str = OWN_LOAD) -> Baselines:
    """Return the baselines of a run, with the rounds of further runs after its own.

    Runs of one cluster at different times are different rounds: only configurations of one run are compared with
    each other within its rounds. Loads of the same shape are one load, whatever their names.

    Args:
        store: of all runs.
        run: the first one.
        others: in the order of their rounds.
        load: of the first run.

    Raises:
        InputError: another run is of another cluster, or is given twice.
    """
    samples = store.samples(run.run_id)
    known = shapes_of(samples)
    seen = {run.run_id}
    for other in others:
        if other.run_id in seen:
            raise InputError(f"run {other.run_id} is given twice", where=store.name, remedy="name it once")
        seen.add(other.run_id)
        _refuse_another_cluster(run, other, store.name)
        first = 1 + max((s.key.repeat for s in samples), default=-1)
        added = store.samples(other.run_id)
        names = _load_names(known, shapes_of(added), other.run_id)
        samples += [
            replace(s, key=replace(s.key, repeat=first + s.key.repeat, load=names.get(s.key.load, s.key.load)))
            for s in added
        ]
    source = f"{store.name}, runs {', '.join([run.run_id, *(other.run_id for other in others)])}"
    return baselines_of(samples, source=source, load=load)


def _refuse_another_cluster(run: Run, other: Run, where: str) -> None:
    """Raises:
    InputError: the rates of the two runs are not of the same cluster.
    """
    if run.is_simulated and other.is_simulated:
        return  # the cluster is always the same; only its noise and faults are options
    if other.target != run.target or is_another_cluster(run.facts, other.facts):
        raise InputError(
            f"run {other.run_id} measured {other.target}, and run {run.run_id} measured {run.target}, or the "
            "cluster was created again since",
            where=where,
            remedy="join only runs of the same cluster; `cephfit compare` compares different ones",
        )


def _load_names(known: Mapping[str, LoadShape], added: Mapping[str, LoadShape], run_id: str) -> Mapping[str, str]:
    """Return the name of each load of a further run in the first one; a new name for a new load."""
    by_shape = {_shape(shape): name for name, shape in known.items()}
    return {name: by_shape.get(_shape(shape), f"{name or 'own'} of {run_id}") for name, shape in added.items()}


def _shape(shape: LoadShape) -> tuple[Any, ...]:
    return (shape.iodepth, shape.n_clients, shape.rest, shape.align_nbytes, shape.sync)

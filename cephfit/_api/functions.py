"""The functions of the public API. They do the same as the commands, with the same messages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cephfit._api.store import Store, location_of, run_id_of
from cephfit.core.errors import InputError
from cephfit.core.profile_files import read_profile as read_profile_file
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.prediction_model import DEFAULT_CONFIDENCE, MODELS
from cephfit.core.values.profile import Profile
from cephfit.core.values.run import Run
from cephfit.core.values.sample import OWN_LOAD, State, WorkloadSample

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cephfit._api.accuracy_values import Accuracy
    from cephfit.core.protocols import Progress
    from cephfit.core.values.prediction import ManyPredictions
    from cephfit.core.values.supply import SupplySet
    from cephfit.operations.evaluation_set import EvaluationSet
    from cephfit.operations.measuring.cluster_options import ClusterOptions

PathOrUrl = str | os.PathLike[str]
_ENTERED = "measured"
"""Default name of the metric of values given to ``assess``."""


def open_store(url_or_path: PathOrUrl) -> Store:
    """Open a results store that ``cephfit sweep run`` or ``run_sweep`` wrote.

    Args:
        url_or_path: path of an SQLite file, or an SQLAlchemy URL such as
            ``postgresql+psycopg://user@host/results``.

    Returns:
        The store; a context manager that closes it.

    Raises:
        StoreError: it does not exist, is not a store, has another schema version, or is locked.
    """
    from cephfit.results.store.sample_store import Store as ResultsStore

    location = os.fspath(url_or_path)
    return Store(ResultsStore.open(location), location)


def read_profile(path: PathOrUrl) -> Profile:
    """Read a workload profile: the JSON file that ``cephfit trace profile -o`` wrote, or ``Profile.dumps()``.

    Args:
        path: of the file; ``-`` for standard input.

    Raises:
        InputError: it cannot be read, or is not a profile.
    """
    return read_profile_file(Path(path))


def profile_trace(
    paths: PathOrUrl | Iterable[PathOrUrl],
    *,
    name: str | None = None,
    format: str | None = None,
    action: str | None = None,
    disks: Sequence[str] = (),
    parts: bool = False,
    describe: str = "fast",
    threshold: int = RANDOM_THRESHOLD_LBN,
    assume_op: str | None = None,
    columns: str | None = None,
    blkparse_format: str | None = None,
    scheduler: str | None = None,
    waiting: bool = True,
    progress: bool = False,
) -> Profile:
    """Count the accesses of a trace per size, operation and randomness, as ``cephfit trace profile``.

    The first call in a process may compile the reader of the format, which takes seconds. Several processes and
    threads may read traces at the same time.

    Args:
        paths: trace files (also compressed), folders of blktrace files, or URLs (``s3://``, ``http://``); one, or
            several recordings of different disks.
        name: of the profile; None: from the first file.
        format: of the trace, such as ``blktrace``; None: detected from the content.
        action: block-layer event that counts as an access: ``Q`` (queued), ``D`` (issued to the disk) or ``C``
            (completed); None: Q, or C for a trace of completions only.
        disks: count only these; empty: all.
        parts: the files are consecutive parts of one trace, in this order.
        describe: ``fast``, or ``full`` for behaviour over time and over the disk.
        threshold: distance in blocks of 512 bytes beyond which an access is random; keep 128 for profiles to map.
        assume_op: ``read`` or ``write``, for formats that do not distinguish them.
        columns: of a delimited file, in order, such as ``time:us,op:0/1,offset:bytes,length:bytes``
            (docs/formats.md).
        blkparse_format: as given to ``blkparse -f``.
        scheduler: address of a Dask cluster, or ``processes`` for one process per core.
        waiting: count alignment, flushes, and waiting time by kind of access and number outstanding. Without them,
            large files are read by all cores.
        progress: show bars on standard error.

    Raises:
        InputError: names the file and the place in it, or the argument.
        HostError: an optional package is not installed.
    """
    from cephfit.core.values.cells import Op
    from cephfit.traces import profile_files
    from cephfit.traces.files import remote
    from cephfit.traces.read_options import parts_hint, read_options
    from cephfit.traces.readers.block_events.block_layer import Action

    _one_of(describe, ("fast", "full"), "describe")
    if action is not None:
        _one_of(action, [a.value for a in Action], "action")
    if assume_op is not None:
        _one_of(assume_op, [op.value for op in Op], "assume_op")
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    texts = [os.fspath(path) for path in given]
    files = [remote.path_of(path) if ":" in path else Path(path) for path in texts]
    with _progress(progress) as shown, parts_hint(files, parts=parts):
        return profile_files(
            files,
            format_name=format,
            action=Action(action) if action else None,
            name=name,
            disks=tuple(disks),
            parts=parts,
            full=describe == "full",
            threshold=threshold,
            options=read_options(assume_op, columns, blkparse_format),
            scheduler=scheduler,
            demands=waiting,
            progress=shown,
        )


def read_baselines(
    store_or_csv: PathOrUrl | Store, run: str | Run | None = None, *, load: str = OWN_LOAD
) -> Baselines:
    """Read the rates of every configuration in every cell.

    Args:
        store_or_csv: a store (open, path or URL), or the path of a CSV file with the columns configuration, size,
            pattern, client, run, iops.
        run: id of a run in the store, or a ``Run``; None: the newest.
        load: of the sweep file; the measurement's own unless named.

    Returns:
        Rates in I/Os per second, summed over concurrent clients, one value for each round. ``notes`` are caveats,
        such as that the figures are simulated.

    Raises:
        InputError: no such file or load, a CSV file that cannot be used, or one with a run.
        StoreError: the store cannot be used, or there is no such run.
    """
    from cephfit.results import open_baselines
    from cephfit.results.report.run_notes import run_document, run_notes

    location, run_id = location_of(store_or_csv), run_id_of(run)
    measured = run_document(location, run_id)
    found = open_baselines(location, measured["run"] or run_id, load)
    return replace(found, is_finished=measured["finished"], notes=(*run_notes(measured), *found.notes))


def predict(
    profile: Profile,
    baselines: Baselines,
    *,
    model: str = MODELS[0].name,
    confidence: float = DEFAULT_CONFIDENCE,
) -> PredictionSet:
    """Predict the performance of every configuration for a workload, as ``cephfit map``; nothing is stored.

    Pure: it depends on the arguments alone, and may be called from several threads.

    Args:
        profile: what the workload does.
        baselines: the rates of the configurations.
        model: ``waiting`` (by what the workload waited for), ``time`` (the mix adds up as time), ``meyer``,
            ``meyer-random`` or ``meyer-sequential``.
        confidence: joint level of all intervals, between 0 and 1.

    Returns:
        One ``Prediction`` per configuration, best first, relative to the default = 100, each with an interval and
        a verdict; ``best`` and ``worst`` name the default where nothing is distinguishably better or worse.

    Raises:
        InputError: no such model or level, a cell that the workload uses was not measured, or an argument is of
            another type.
    """
    from cephfit.mapper import predictor
    from cephfit.mapper.decisions.contrasts import ranked
    from cephfit.results.report.run_notes import may_be_unfinished

    _must_be(Profile, profile, "profile", "cephfit.read_profile(path)")
    _must_be(Baselines, baselines, "baselines", "cephfit.read_baselines(store_or_csv)")
    with may_be_unfinished({"finished": baselines.is_finished}):
        return ranked(predictor(model, confidence=confidence, with_error=True), profile, baselines)


def supply(profile: Profile, baselines: Baselines, *, confidence: float = DEFAULT_CONFIDENCE) -> SupplySet:
    """Compare what a workload needs with what each configuration serves of its mix, as the first line of `map`.

    Pure, as ``predict``.

    Args:
        profile: what the workload does.
        baselines: the rates of the configurations.
        confidence: level of each interval by itself, between 0 and 1.

    Returns:
        ``demand``: mean, busiest second and busiest minute in accesses per second, outstanding I/O, share of time
        with I/O outstanding; None if the profile has no duration. ``supplies``: for each configuration, accesses
        per second at the workload's own depth and the most at any measured depth, with intervals. ``headroom_of``
        divides the two; ``fit()`` is the answer in words.

    Raises:
        InputError: no such level, or a rate that the mix needs was not measured under the default.
    """
    from cephfit.mapper.absolute_rates.supply import supply_set
    from cephfit.results.report.run_notes import may_be_unfinished

    with may_be_unfinished({"finished": baselines.is_finished}):
        found = supply_set(profile, baselines, confidence=confidence)
    return replace(found, notes=(*baselines.notes, *found.notes))


def predict_many(
    profiles: Iterable[Profile],
    baselines: Baselines,
    *,
    model: str = MODELS[0].name,
    confidence: float = DEFAULT_CONFIDENCE,
) -> ManyPredictions:
    """Predict the performance of every configuration for many workloads at once, for reports on a whole fleet.

    The figures are those of ``predict``, without reasons and notes on single workloads: predictions differ by
    rounding, ends of intervals by at most a millionth. Pure, as ``predict``.

    Args:
        profiles: what the workloads do; names may repeat.
        baselines: the rates of the configurations.
        model: as for ``predict``.
        confidence: joint level of the intervals of each workload, between 0 and 1.

    Returns:
        Arrays ``relative``, ``low`` and ``high`` of workloads by configurations, the default = 100; NaN where a
        configuration lacks a rate that the workload needs. ``best`` names the best one for each workload.

    Raises:
        InputError: no such model or level, or a cell that a workload uses was not measured.
    """
    from cephfit.mapper.models.many_profiles import predict_many as predicted
    from cephfit.results.report.run_notes import may_be_unfinished

    with may_be_unfinished({"finished": baselines.is_finished}):
        found = predicted(list(profiles), baselines, model, confidence, with_error=True)
    return replace(found, notes=baselines.notes)


def assess(
    store: PathOrUrl | Store,
    runs: str | Run | Iterable[str | Run] | None = None,
    *,
    measured: Mapping[str, Sequence[float]] | None = None,
    metric: str = _ENTERED,
    profiles: Profile | Iterable[Profile] = (),
    models: Sequence[str] | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    leave_out: str | None = None,
) -> Accuracy:
    """Compare predictions with measurements of real workloads on the same configurations, as ``cephfit assess``.

    Every verified run is predicted again from its baselines, by each model. Nothing is stored.

    Args:
        store: with the runs: open, path or URL; or the path of an evaluation folder with ``baselines.csv``,
            ``measured.csv`` and ``profiles/``.
        runs: ids or ``Run`` values; None: all runs with workload runs (``cephfit verify``), or with ``measured``
            the newest run. A folder has none.
        measured: values of a workload that was run by other means: by configuration, one value per round in the
            order of rounds; more is better. Needs one run in a store, and one profile.
        metric: what ``measured`` is, such as ``tps``.
        profiles: of the workloads, by their names; a single one is used if there is only one workload. Else the
            profile that is stored for the workload is used.
        models: names; None: all, and the trivial predictors that they are compared with.
        confidence: joint level of the intervals, between 0 and 1.
        leave_out: ``workloads`` or ``configurations``: estimate the models' errors without each of them, and judge
            the intervals on the one left out; None: use the errors that the product uses.

    Returns:
        Per run, workload, model and configuration: predicted, measured, their ratio, the error, and whether the
        measured value is in the predicted interval. ``summary()`` has the figures of each model.

    Raises:
        InputError: nothing can be assessed; it names the first reason.
        StoreError: the store cannot be used, or there is no such run.
    """
    from cephfit._api.accuracy_values import Accuracy
    from cephfit.mapper.assessment.model_evaluation import LeaveOut
    from cephfit.operations.evaluation_set import read_folder, read_store
    from cephfit.operations.model_assessment import ASSESSED, assess_models

    if leave_out is not None:
        _one_of(leave_out, [what.value for what in LeaveOut], "leave_out")
    given = [profiles] if isinstance(profiles, Profile) else list(profiles)
    if not isinstance(store, Store) and "://" not in os.fspath(store) and Path(store).is_dir():
        if runs is not None or measured is not None:
            raise InputError(
                "an evaluation folder has no runs and its own values",
                where=os.fspath(store),
                remedy="omit runs and measured=, or give a store",
            )
        evaluation = read_folder(Path(store), profiles=given)
    else:
        opened = store if isinstance(store, Store) else open_store(store)
        with nullcontext() if opened is store else opened:
            chosen = _chosen(opened, runs, newest=measured is not None)
            if measured is None:
                evaluation = read_store(opened._results, chosen, given)
            else:
                evaluation = _entered(opened, measured, metric, chosen, given)
    found = assess_models(
        evaluation,
        models=ASSESSED if models is None else tuple(models),
        confidence=confidence,
        leave_out=None if leave_out is None else LeaveOut(leave_out),
    )
    return Accuracy(found.verified, found.notes)


def _chosen(store: Store, runs: str | Run | Iterable[str | Run] | None, *, newest: bool) -> list[Run]:
    if isinstance(runs, str | Run) or (runs is None and newest):
        return [store.run(runs)]
    return list(store.runs()) if runs is None else [store.run(run) for run in runs]


def _entered(
    store: Store,
    measured: Mapping[str, Sequence[float]],
    metric: str,
    runs: Sequence[Run],
    profiles: Sequence[Profile],
) -> EvaluationSet:
    from cephfit.operations.evaluation_set import EvaluationSet, of_run, run_baselines

    if len(runs) != 1 or len(profiles) != 1:
        raise InputError(
            "values in measured= are of one run and one workload",
            where=f"{len(runs)} runs and {len(profiles)} profiles",
            remedy="give one run and one profile: assess(store, run, measured=..., profiles=profile)",
        )
    samples = [
        WorkloadSample(name, repeat, 0, State.OK, metric, float(value), 0, 0)
        for name, values in measured.items()
        for repeat, value in enumerate(values)
    ]
    for sample in samples:
        if sample.value is None or not 0 < sample.value < float("inf"):
            raise InputError(
                f"{sample.value} is not a value that can be compared",
                where=f"measured[{sample.configuration!r}]",
                remedy="give positive numbers; omit configurations without a value",
            )
    baselines = run_baselines(store._results, runs[0])
    return EvaluationSet(store.name, (of_run(runs[0], baselines, profiles[0].name, profiles[0], samples),))


def run_sweep(
    sweep: PathOrUrl,
    target: str = "sim",
    store: PathOrUrl = "results.sqlite",
    *,
    profile: PathOrUrl | None = None,
    model: str | None = None,
    new: bool = False,
    keep: bool = False,
    apply: bool = False,
    health_limit_seconds: float = 300.0,
    cluster: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Run:
    """Measure a sweep on one target to its end, as ``cephfit sweep run``.

    After a stop at any moment (KeyboardInterrupt, an exception, SIGKILL), the same call continues the run: every
    sample is stored when it ends. Only one process at a time may change a target: the others get a ClusterError.
    Do not call it from two threads for one target.

    Args:
        sweep: path of a sweep file, or the name of a bundled one, such as ``quick``.
        target: where to measure: ``sim``, ``lab``, ``lab:NAME``, ``ceph``, ``ceph:NAME``, ``local:/PATH``,
            ``iscsi://HOST/IQN/LUN``, ``nfs://HOST/EXPORT``, ``iscsi:lab``, ``openstack:CLOUD,...``.
        store: path or URL of the store; it is created if it does not exist.
        profile: file of the workload's profile, for sweeps that race or search for one.
        model: that predicts it; None: ``waiting``.
        new: begin a new run even if one of this sweep is unfinished.
        keep: leave the target in the last configuration, and keep the volumes.
        apply: allow changes to a cluster that cephfit did not create; without it such a target is refused.
        health_limit_seconds: how long to wait for an unhealthy cluster.
        cluster: connection options of such a cluster, named as those of the command with ``_`` for ``-``, without
            the dashes: ``{"conf": "/etc/ceph/ceph.conf", "id": "cephfit", "only_pool": "bench"}``.
        progress: show bars on standard error.

    Returns:
        The finished run.

    Raises:
        InputError: the sweep file, the target or an argument is wrong, or ``apply`` is missing.
        ClusterError: the cluster does not answer, is unhealthy for too long, or refuses.
        HostError: this machine lacks something, such as fio.
        StoreError: the store cannot be used.
    """
    from cephfit.mapper import predictor
    from cephfit.operations.measuring.sweep_measurement import Request, measured

    if model is not None:
        predictor(model)  # refuse a wrong name before the target is opened
    request = Request(
        file=os.fspath(sweep),
        store=os.fspath(store),
        cluster=_cluster_options(cluster or {}),
        apply=apply,
        new=new,
        keep=keep,
        health_limit=health_limit_seconds,
        profile_file=None if profile is None else Path(profile),
        model=model,
    )
    with _progress(progress) as shown:
        return measured(request, target, shown, lambda _store, run: run)


_ADMINS = ("rados", "ceph", "rest")
_PATHS = ("conf", "keyring", "ssh_config")
_SPELLED = {"id": "client_id", "ssh_host": "ssh_hosts"}


def _cluster_options(given: Mapping[str, Any]) -> ClusterOptions:
    from cephfit.operations.measuring.cluster_options import ClusterOptions

    field_of = {name: name for name in ClusterOptions.__slots__ if name not in _SPELLED.values()} | _SPELLED
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name not in field_of:
            raise InputError(
                f"there is no connection option {name!r}",
                where="cluster",
                remedy=f"there are {', '.join(field_of)}",
            )
        if name == "admin":
            _one_of(value, _ADMINS, "cluster['admin']")
        elif name in _PATHS:
            value = Path(value)
        elif name == "ssh_host":
            value = (value,) if isinstance(value, str) else tuple(value)
        options[field_of[name]] = value
    return ClusterOptions(**options)


def _must_be(wanted: type, value: object, argument: str, source: str) -> None:
    if not isinstance(value, wanted):
        raise InputError(
            f"a {type(value).__name__} is not a {wanted.__name__}", where=argument, remedy=f"pass {source}"
        )


def _one_of(value: str, known: Sequence[str], argument: str) -> None:
    if value not in known:
        raise InputError(
            f"{value!r} is not a value of {argument}", where=argument, remedy=f"choose from: {', '.join(known)}"
        )


def _progress(shown: bool) -> AbstractContextManager[Progress]:
    from cephfit.core.protocols import NullProgress
    from cephfit.operations.measuring.progress_display import progress_display

    return progress_display() if shown else nullcontext(NullProgress())

"""Workloads that were run on the configurations of a sweep, read from a store or an evaluation folder.

An evaluation folder has three parts, all text:

- ``baselines.csv``: rates, as in ``cephfit.results.tables.baseline_csv``;
- ``measured.csv``: one row per run of a workload, with the columns
  ``workload,metric,configuration,round,volume,value``; more is better. In a round, all configurations took turns.
  ``volume`` distinguishes runs of one round on several volumes, and may be empty;
- ``profiles/NAME.json``: the profile of the workload NAME, traced on the default.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.profile_files import read_profile
from cephfit.core.units import format_nbytes, whole_number
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import LoadedCell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import (
    OWN_LOAD,
    PROBE_PREFIX,
    PROFILE_DOCUMENT,
    STOPPING_DOCUMENT,
    WORKLOAD_PROFILE_DOCUMENT,
    Run,
    State,
    WorkloadSample,
)
from cephfit.mapper.assessment.model_evaluation import AGAIN, EvaluatedWorkload
from cephfit.results.report.run_notes import continuations_of, run_notes
from cephfit.results.statistics.loads import loads_by_clients
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.store.sample_store import Store, kind_of
from cephfit.results.tables import baseline_csv
from cephfit.results.tables.csv_text import COLUMNS, csv_text, read_text, rows_of
from cephfit.sweep.trial import n_clients_of

BASELINES_FILE = "baselines.csv"
MEASURED_FILE = "measured.csv"
PROFILES_FOLDER = "profiles"
MEASURED_COLUMNS = ("workload", "metric", "configuration", "round", "volume", "value")
_REQUIRED = tuple(name for name in MEASURED_COLUMNS if name != "volume")
_DIGITS = 5
"""Significant digits of exported values: more than any benchmark repeats, and small files."""


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """What can be assessed.

    Attributes:
        source: the store or folder.
        workloads: one per run and workload.
        refused: why others cannot be assessed.
    """

    source: str
    workloads: tuple[EvaluatedWorkload, ...]
    refused: tuple[InputError, ...] = ()


def read_profiles(paths: Iterable[Path]) -> tuple[Profile, ...]:
    """Read profiles from files, and from all ``.json`` files of folders.

    Raises:
        InputError: a file is not a profile, a folder has none, or two profiles have the same name.
    """
    found: dict[str, tuple[Path, Profile]] = {}
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise InputError(
                "there is no profile in this folder", where=str(path), remedy="name files, or a folder of *.json"
            )
        for file in files:
            profile = read_profile(file)
            if profile.name in found:
                raise InputError(
                    f"the profile has the same name, {profile.name}, as {found[profile.name][0]}",
                    where=str(file),
                    remedy="give each workload's profile the workload's name: `cephfit trace profile --name`",
                )
            found[profile.name] = file, profile
    return tuple(profile for _, profile in found.values())


def read_store(store: Store, runs: Sequence[Run] | None = None, profiles: Sequence[Profile] = ()) -> EvaluationSet:
    """Return the workloads that ran on configurations of a store's runs.

    Args:
        store: with the runs.
        runs: None: all.
        profiles: of the workloads, by their names; one alone is used for every workload if there is only one.
            Without one, the profile that the store has for the workload is used.

    Raises:
        StoreError: the store does not answer.
    """
    chosen = store.runs() if runs is None else list(runs)
    by_run: list[tuple[Run, dict[str, list[WorkloadSample]]]] = []
    for run in chosen:
        samples: dict[str, list[WorkloadSample]] = {}
        for workload, sample in store.workload_samples(run.run_id):
            if not workload.startswith(PROBE_PREFIX):  # a clone is no real workload
                samples.setdefault(workload, []).append(sample)
        by_run.append((run, samples))
    names = {workload for _, samples in by_run for workload in samples}
    found: list[EvaluatedWorkload] = []
    refused: list[InputError] = []
    for run, samples in by_run:
        baselines: dict[int, Baselines] = {}
        for workload, own in samples.items():
            try:
                profile = _profile_of(store, run, workload, profiles, is_only=len(names) == 1)
                n = n_clients_of(own[0])
                if n not in baselines:
                    baselines[n] = run_baselines(store, run, n_clients=n)
                found.append(of_run(run, baselines[n], workload, profile, own))
            except InputError as error:
                refused.append(error)
    return EvaluationSet(store.name, tuple(found), tuple(refused))


def run_baselines(store: Store, run: Run, *, n_clients: int = 1) -> Baselines:
    """Return the rates of a run under the sweep's own load, with notes on the run.

    Args:
        store: with the run.
        run: that was measured.
        n_clients: that ran a workload at once; if there were several, the load with this number is used.

    Raises:
        InputError: the run has no samples under that load, or no load with this number of clients.
    """
    samples, source, load = store.samples(run.run_id), f"{store.name}, run {run.run_id}", OWN_LOAD
    if n_clients > 1:
        loads = loads_by_clients(samples)
        if n_clients not in loads:
            raise InputError(
                f"a workload ran on {n_clients} clients at once, and no load has this number of clients",
                where=source,
                remedy=f"measure a load with `clients: {n_clients}`",
            )
        load = loads[n_clients]
    found = baselines_of(samples, source=source, load=load)
    notes = run_notes(
        {
            "run": run.run_id,
            "simulated": run.is_simulated,
            "finished": run.finished,
            "stopping": store.document(run.run_id, STOPPING_DOCUMENT) is not None,
            "continuations": list(continuations_of(store, run.run_id)),
        }
    )
    return replace(found, is_finished=run.finished, notes=tuple(notes))


def of_run(
    run: Run, baselines: Baselines, workload: str, profile: Profile, samples: Sequence[WorkloadSample]
) -> EvaluatedWorkload:
    """Return a workload with its samples on configurations of a run.

    Raises:
        InputError: it ran on a configuration without baselines.
    """
    _require_baselines(samples, baselines, where=f"run {run.run_id}, workload {workload}")
    return EvaluatedWorkload(
        workload,
        profile,
        baselines,
        tuple(samples),
        run.run_id,
        run.target,
        run.is_simulated,
        _like_the_default(run),
    )


def _require_baselines(samples: Sequence[WorkloadSample], baselines: Baselines, *, where: str) -> None:
    names = dict.fromkeys(name for name, _ in (*baselines.cells, *baselines.loaded, *baselines.missing))
    unknown = sorted({s.configuration for s in samples} - names.keys())
    if unknown:
        raise InputError(
            f"there are no baselines of the configuration {unknown[0]!r}, on which the workload ran",
            where=where,
            remedy=f"measure it in the sweep, or omit its values; there are {', '.join(names)}",
        )


def _like_the_default(run: Run) -> frozenset[str]:
    """Return the configurations of a run with the default's settings; by name if its sweep cannot be read."""
    from cephfit.sweep.declaration.sweep_file import parse_sweep

    configurations = parse_sweep(run.sweep_text, file=f"run {run.run_id}", stored=True).configurations
    default = next((c.settings for c in configurations if c.name == DEFAULT_CONFIGURATION), ())
    return frozenset(c.name for c in configurations if c.settings == default and c.name != DEFAULT_CONFIGURATION)


def _profile_of(store: Store, run: Run, workload: str, profiles: Sequence[Profile], *, is_only: bool) -> Profile:
    for profile in profiles:
        if profile.name == workload or (is_only and len(profiles) == 1):
            return profile
    own = store.document(run.run_id, kind_of(WORKLOAD_PROFILE_DOCUMENT, workload))
    where = f"run {run.run_id}, workload {workload}"
    if own is not None:
        return Profile.from_json(own, where=f"{where}: profile")
    mapped = store.document(run.run_id, PROFILE_DOCUMENT)
    if mapped is not None:
        profile = Profile.from_json(mapped, where=f"{where}: profile")
        if is_only or profile.name == workload:
            return profile
    given = ", ".join(profile.name for profile in profiles)
    raise InputError(
        "the profile of the workload is missing",
        where=where,
        remedy="trace the workload on the default, `cephfit trace profile --name` it like the workload, and give "
        f"the profile with --profile (in Python: profiles=){f'; given are {given}' if given else ''}",
    )


def read_folder(folder: Path, *, profiles: Sequence[Profile] = ()) -> EvaluationSet:
    """Read an evaluation folder.

    Args:
        folder: with the three parts.
        profiles: used instead of those in the folder, by their names.

    Raises:
        InputError: a part is missing or wrong; names the file and the line.
    """
    if not folder.is_dir():
        raise InputError(
            "there is no such folder",
            where=str(folder),
            remedy="give a store with verified runs, or an evaluation folder that `cephfit assess --export` wrote",
        )
    for name in (BASELINES_FILE, MEASURED_FILE):
        if not (folder / name).is_file():
            raise InputError(
                f"the evaluation folder has no {name}",
                where=str(folder),
                remedy=f"it needs {BASELINES_FILE}, {MEASURED_FILE} and {PROFILES_FOLDER}/NAME.json",
            )
    baselines = baseline_csv.read(folder / BASELINES_FILE)
    simulated = bool(baseline_csv.is_marked_simulated(folder / BASELINES_FILE))
    given = {profile.name: profile for profile in profiles}
    names = dict.fromkeys(name for name, _ in (*baselines.cells, *baselines.loaded))
    found = []
    for workload, (samples, placed) in _measured(folder / MEASURED_FILE).items():
        file = folder / PROFILES_FOLDER / f"{workload}.json"
        if workload not in given and not file.is_file():
            raise InputError(
                f"there is no profile of the workload {workload!r}",
                where=str(file),
                remedy="trace the workload on the default, and write its profile to this file with "
                "`cephfit trace profile -o`",
            )
        _require_baselines(samples, baselines, where=f"{folder / MEASURED_FILE}, workload {workload}")
        found.append(
            EvaluatedWorkload(
                workload,
                given.get(workload) or read_profile(file),
                baselines,
                samples,
                str(folder),
                is_simulated=simulated,
                again=frozenset(name for name in names if name.endswith(AGAIN)),
                placed=placed,
            )
        )
    return EvaluationSet(str(folder), tuple(found))


_Placed = Mapping[tuple[str, int], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class _Value:
    """One row of ``measured.csv``."""

    line: int
    metric: str
    configuration: str
    round: int
    volume: str
    value: float


def _measured(path: Path) -> dict[str, tuple[tuple[WorkloadSample, ...], _Placed]]:
    """Return the samples of each workload, and where each was placed.

    Runs of one round on several volumes become repeats of their own, the first volumes of all configurations in
    one repeat, and so on: configurations remain comparable within a repeat even if volumes have different names.
    """
    rows: dict[str, dict[tuple[str, int, str], _Value]] = {}
    for workload, row in _values(path):
        key = (row.configuration, row.round, row.volume)
        own = rows.setdefault(workload, {})
        if key in own:
            raise InputError(
                f"{workload} on {row.configuration}, round {row.round}, volume {row.volume or '(none)'} is in "
                f"line {own[key].line} already",
                where=f"{path}:{row.line}",
                remedy="each run of a workload is one row with another round or volume",
            )
        first = next(iter(own.values()), row)
        if row.metric != first.metric:
            raise InputError(
                f"{workload} has two metrics, {first.metric} and {row.metric}",
                where=f"{path}:{row.line}, column metric",
                remedy="give each metric its own workload name and profile",
            )
        own[key] = row
    if not rows:
        raise InputError("the file has no values", where=str(path), remedy=_columns_remedy())
    return {workload: _samples(own) for workload, own in rows.items()}


def _samples(rows: Mapping[tuple[str, int, str], _Value]) -> tuple[tuple[WorkloadSample, ...], _Placed]:
    volumes: dict[tuple[str, int], list[str]] = {}
    for name, number, volume in sorted(rows):
        volumes.setdefault((name, number), []).append(volume)
    places = {key: (key[1], volumes[key[0], key[1]].index(key[2])) for key in rows}
    repeats = {place: i for i, place in enumerate(sorted(set(places.values())))}
    samples = []
    placed: dict[tuple[str, int], tuple[int, str]] = {}
    for key, row in rows.items():
        repeat = repeats[places[key]]
        samples.append(WorkloadSample(row.configuration, repeat, 0, State.OK, row.metric, row.value, 0, 0))
        placed[row.configuration, repeat] = (row.round, row.volume)
    return tuple(samples), placed


def _values(path: Path) -> Iterator[tuple[str, _Value]]:
    text = read_text(path, remedy=_columns_remedy())
    rows = rows_of(text, required=_REQUIRED, optional=("volume",), where=str(path), remedy=_columns_remedy())
    for line, fields in rows:
        yield _value(fields, line, f"{path}:{line}")


def _value(fields: Mapping[str, str], line: int, where: str) -> tuple[str, _Value]:
    workload, number = fields["workload"], whole_number(fields["round"])
    if number is None:
        raise InputError(
            f"{fields['round'][:20]!r} is not a round",
            where=f"{where}, column round",
            remedy="rounds count 0, 1, 2 ...",
        )
    if workload != Path(workload).name:
        raise InputError(
            f"{workload!r} cannot be the name of a profile's file",
            where=f"{where}, column workload",
            remedy="name workloads without '/'",
        )
    try:
        value = float(fields["value"])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(
            f"{fields['value']!r} is not a value that can be compared",
            where=f"{where}, column value",
            remedy="give positive numbers, more is better; omit runs without a value",
        )
    return workload, _Value(
        line, fields["metric"], fields["configuration"], number, fields.get("volume", ""), value
    )


def _columns_remedy() -> str:
    return f"the first line names the columns {','.join(MEASURED_COLUMNS)}"


def folder_files(evaluation: EvaluationSet) -> dict[str, str]:
    """Return the files of an evaluation folder: relative path to content. Values have 5 significant digits.

    Raises:
        InputError: there is no workload, there are several runs, or a workload's name cannot be a file's.
    """
    workloads = evaluation.workloads
    runs = dict.fromkeys(one.run for one in workloads)
    if len(runs) != 1:
        raise InputError(
            "an evaluation folder has the baselines of one run",
            where=", ".join(runs) or evaluation.source,
            remedy="choose one with --run",
        )
    measured: list[Sequence[object]] = []
    files = {}
    for one in workloads:
        name = one.workload
        if name != Path(name).name or name.startswith("."):
            raise InputError(f"{name!r} cannot be the name of a profile's file", remedy="name it without '/'")
        for sample in one.samples:
            if sample.state is State.OK and sample.value is not None and sample.value > 0:
                number, volume = one.placed.get((sample.configuration, sample.repeat), (sample.repeat, ""))
                value = _rounded(sample.value)
                measured.append((name, sample.metric, sample.configuration, number, volume, value))
        files[f"{PROFILES_FOLDER}/{name}.json"] = _profile_text(one.profile)
    first = workloads[0]
    baselines = _baselines_text(first.baselines, first.target, is_simulated=first.is_simulated)
    return {BASELINES_FILE: baselines, MEASURED_FILE: csv_text(MEASURED_COLUMNS, measured), **files}


def _baselines_text(baselines: Baselines, target: str, *, is_simulated: bool) -> str:
    """Return all rates as CSV: one row per repeat, the sum of its clients. The sweep's own load has no name."""
    rates: dict[tuple[str, LoadedCell], Baseline] = {
        (name, LoadedCell(cell.size.benchmark_nbytes, cell.pattern)): found
        for (name, cell), found in baselines.cells.items()
        if not baselines.loaded
    } | dict(baselines.loaded)
    rows: list[Sequence[object]] = []
    for (name, cell), found in rates.items():
        align = format_nbytes(cell.align_nbytes) if cell.align_nbytes else ""
        own = baselines.cells.get((name, cell.bin_cell))
        is_own = own is not None and cell.nbytes == own.cell.size.benchmark_nbytes and own.iops == found.iops
        named = "" if is_own or not baselines.cells else str(cell)
        load = (named, cell.iodepth, found.n_clients, cell.sync, align) if baselines.loaded else ()
        for number, iops in zip(found.rounds, found.iops, strict=True):
            place = (name, format_nbytes(cell.nbytes), cell.pattern.value, "all", number)
            rows.append((*place, _rounded(iops), *load, target, str(is_simulated).lower()))
    loads = ("load", "iodepth", "clients", "sync", "align")
    columns = (*COLUMNS, *(loads if baselines.loaded else ()), *baseline_csv.ORIGIN_COLUMNS)
    return csv_text(columns, rows)


def _profile_text(profile: Profile) -> str:
    """Return a profile as JSON without the parts of its description that predictions do not use."""
    used = {k: v for k, v in profile.description.items() if k == "random_threshold_lbn"}
    document = _all_rounded(replace(profile, description=used).to_json())
    return json.dumps(document, separators=(",", ":"), allow_nan=False).replace("],[", "],\n[") + "\n"


def _all_rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _all_rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_all_rounded(part) for part in value]
    return value


def _rounded(value: float) -> str:
    return repr(float(f"{value:.{_DIGITS}g}")).removesuffix(".0")

"""What `advise` recommends, against what real workloads did: prints the tables of docs/back-ends.md.

FOLDER has an evaluation folder (docs/evidence.md) for each target, as `back_end_runs.py` writes them, or is one.
Without it, the kept measurements of `data/` are used. On each target, the advised configuration and all predicted
ratios are compared with the measured ones. Between targets, the first choice, the order and the ratios of the run
times are compared. Every miss is listed.

    .venv/bin/python benchmarks/back_end_advice.py [FOLDER]
    .venv/bin/python benchmarks/back_end_advice.py --tables FOLDER    # what was measured, without advice
    .venv/bin/python benchmarks/back_end_advice.py --networks FOLDER  # on Hwang's networks, next to his tables
"""

import argparse
import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from cephfit.core.statistics.absolute_spread import Absolute
from cephfit.core.statistics.variance import Table
from cephfit.core.units import format_nbytes
from cephfit.core.values.assessment import AssessmentRow
from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE
from cephfit.core.values.supply import Estimate, busy_seconds
from cephfit.mapper import MODELS, predictor
from cephfit.mapper.assessment.accuracy import VerifiedPrediction, accuracy_by_model, error_pct_of, is_inside
from cephfit.mapper.assessment.model_evaluation import EvaluatedWorkload, verified
from cephfit.mapper.assessment.prediction_assessment import values_of
from cephfit.mapper.extrapolation.distance import Distance
from cephfit.mapper.extrapolation.distant_workload import (
    Advice,
    advised,
    fastest,
    ratio_of_targets,
)
from cephfit.operations.evaluation_set import BASELINES_FILE, read_folder
from cephfit.operations.model_assessment import FIGURES, figure_text
from cephfit.results import open_baselines

DATA = Path(__file__).resolve().parent / "data"
KEPT = ("evaluation", "evaluation-kept-volumes")
_REFERENCE = "rbd"
"""The target on which the workloads were recorded; without it, the first one."""
_HEADS = {"rbd": "RBD, 2 copies", "iscsi": "iSCSI", "nfs": "NFS, `sync`", "swift": "Swift", "local": "local disk"}
"""Of the columns of the measured rates, in this order."""
_CONFIDENCE = 0.95
_UNKNOWN = 10.0
"""Factor from which on an interval says nothing: two runs differ, and no others show by how much runs differ."""
_MISSED_PCT = 25.0
"""Errors above it are listed."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on one target.

    Attributes:
        evaluated: its runs.
        advice: for it.
        verified: all predictions of the target with the measured values.
    """

    evaluated: EvaluatedWorkload
    advice: Advice
    verified: VerifiedPrediction

    @property
    def value(self) -> float | None:
        """Mean value of the runs on the advised configuration; None if it was not run."""
        values = values_of(self.evaluated.samples).get(self.advice.best)
        return math.exp(float(np.mean(np.log(list(values.values()))))) if values else None

    @property
    def supply(self) -> Estimate | None:
        return None if self.advice.supply is None else self.advice.supply.own_depth


def cases_of(folders: Mapping[str, Path], without: Collection[str] = ()) -> Mapping[str, Mapping[str, Case]]:
    """Return the cases by workload and target, from evaluation folders by target, without some configurations."""
    model = predictor(MODELS[0], confidence=DEFAULT_CONFIDENCE, with_error=True)
    found: dict[str, dict[str, Case]] = {}
    for target, folder in folders.items():
        for whole in read_folder(folder).workloads:
            one = _reduced(whole, without)
            advice = advised(model, one.profile, one.baselines, Distance(), target=target)
            case = Case(one, advice, verified(one, MODELS[0], advice.predictions))
            found.setdefault(one.workload, {})[target] = case
    return found


def _reduced(one: EvaluatedWorkload, without: Collection[str]) -> EvaluatedWorkload:
    kept: dict[str, Any] = {
        name: {key: found for key, found in getattr(one.baselines, name).items() if key[0] not in without}
        for name in ("cells", "loaded", "missing")
    }
    samples = tuple(sample for sample in one.samples if sample.configuration not in without)
    return replace(one, baselines=replace(one.baselines, **kept), samples=samples)


@dataclass(frozen=True, slots=True)
class Between:
    """A workload on several targets, on the advised configuration of each.

    Attributes:
        workload: name.
        first: the target that is advised.
        as_fast: targets that may be as fast.
        predicted: performance relative to the reference = 1, with its interval, by target.
        measured: the same by target.
    """

    workload: str
    first: str
    as_fast: tuple[str, ...]
    predicted: Mapping[str, Estimate]
    measured: Mapping[str, float]

    @classmethod
    def of(cls, workload: str, cases: Mapping[str, Case]) -> "Between | None":
        """Return the comparison; None with fewer than two targets that have a rate and a value."""
        used = {target: (c.supply, c.value) for target, c in cases.items()}
        known = {target: (s, v) for target, (s, v) in used.items() if s is not None and v is not None}
        if len(known) < 2:
            return None
        reference = _REFERENCE if _REFERENCE in known else next(iter(known))
        supply, value = known[reference]
        profile = cases[reference].evaluated.profile
        busy, idle = busy_seconds(profile), profile.idle_seconds
        busy_share = busy / (busy + idle) if busy is not None and idle is not None else 1.0
        first, as_fast = fastest([cases[target].advice for target in known])
        return cls(
            workload,
            first.target,
            as_fast,
            {
                target: ratio_of_targets(own, supply, confidence=_CONFIDENCE, busy_share=busy_share)
                for target, (own, _) in known.items()
                if own is not supply
            },
            {target: own / value for target, (_, own) in known.items()},
        )

    @property
    def regret_pct(self) -> float:
        """The cost of following the advice, in per cent of the best measured target."""
        return 100 * (1 - self.measured[self.first] / max(self.measured.values()))

    @property
    def is_best_named(self) -> bool:
        """Whether the fastest target is the first choice or one that may be as fast."""
        return max(self.measured, key=lambda target: self.measured[target]) in (self.first, *self.as_fast)

    @property
    def spearman(self) -> float | None:
        """Rank correlation over the targets; None for fewer than three."""
        if len(self.measured) < 3:
            return None
        predicted = [self.predicted[t].value if t in self.predicted else 1.0 for t in self.measured]
        return float(spearmanr(predicted, list(self.measured.values())).statistic)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _one(case: Case) -> list[str]:
    rows = {row.configuration: row for row in case.verified.assessment.rows}
    measured = {name: row.measured_relative for name, row in rows.items() if row.measured_relative is not None}
    best = max(measured, key=lambda name: measured[name])
    advised_row, regret = rows.get(case.advice.best), case.verified.assessment.regret_pct
    spearman = case.verified.spearman
    return [
        case.evaluated.workload,
        f"`{case.advice.best}`",
        "not run" if advised_row is None else _interval(advised_row),
        f"{measured[case.advice.best]:.0f}" if case.advice.best in measured else "",
        f"`{best}` {measured[best]:.0f}",
        "" if regret is None else f"{regret:.1f} %",
        "" if spearman is None else f"{spearman:.2f}",
    ]


def _interval(row: AssessmentRow) -> str:
    low, high = ("" if end is None else f"{end:.0f}" for end in (row.predicted_low, row.predicted_high))
    return f"{row.predicted_relative:.0f} ({low} to {high})"


def of_target(target: str, cases: Sequence[Case]) -> Iterator[str]:
    """Return the lines on the configurations of one target."""
    heads = ("workload", "advised", "predicted", "measured", "best measured", "regret", "Spearman")
    yield f"### {target}: the configurations of this target, the default = 100\n"
    yield from _table(heads, [_one(case) for case in cases])
    (accuracy,) = accuracy_by_model([case.verified for case in cases])
    yield "\n" + ", ".join(f"{title} {figure_text(accuracy, name)}" for name, title in FIGURES)
    missed = [
        (error, case, row)
        for case in cases
        for row in case.verified.compared
        if (error := error_pct_of(row)) is not None and (error > _MISSED_PCT or is_inside(row) is False)
    ]
    yield f"\nErrors above {_MISSED_PCT:g} %, or outside intervals: {len(missed)} of {accuracy.n_configurations}"
    for error, case, row in sorted(missed, key=lambda one: -one[0]):
        outside = ", outside" if is_inside(row) is False else ""
        yield (
            f"- {case.evaluated.workload} on `{row.configuration}`: predicted {_interval(row)}, "
            f"measured {row.measured_relative:.0f} ({error:.0f} %{outside})"
        )
    yield ""


def of_all(found: Sequence[Between]) -> Iterator[str]:
    """Return the lines on the targets."""
    yield "### The targets, each with its advised configuration, the reference = 1\n"
    if not found:
        yield (
            "No workload ran on two targets: the order of the back ends, the regret of the first choice and the "
            "ratios between them cannot be checked with these data."
        )
        return
    rows = [
        [
            one.workload,
            " or ".join((one.first, *one.as_fast)),
            ", ".join(sorted(one.measured, key=lambda target: -one.measured[target])),
            f"{one.regret_pct:.1f} %",
            "" if one.spearman is None else f"{one.spearman:.2f}",
        ]
        for one in found
    ]
    yield from _table(("workload", "advised", "measured order", "regret", "Spearman"), rows)
    ratios = [(one, target, p, one.measured[target]) for one in found for target, p in one.predicted.items()]
    errors = [100 * abs(p.value / measured - 1) for _, _, p, measured in ratios]
    bounded = [p.low <= measured <= p.high for _, _, p, measured in ratios if p.is_known]
    named = sum(one.is_best_named for one in found)
    yield (
        f"\nfastest target named for {named} of {len(found)} workloads, mean regret "
        f"{np.mean([one.regret_pct for one in found]):.1f} %, median error of a ratio {np.median(errors):.1f} %, "
        f"{sum(bounded)} of {len(bounded)} intervals contain the measured ratio"
    )
    for one, target, p, measured in ratios:
        yield (
            f"- {one.workload} on {target}: predicted {p.value:.3g} ({p.low:.3g} to {p.high:.3g}), measured "
            f"{measured:.3g}"
        )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rates(folder: Path) -> Mapping[LoadedCell, str]:
    """Return the default's IOPS in each kind of access, with separate intervals, as text."""
    baselines = open_baselines(folder / BASELINES_FILE)
    table = Table.of_loaded(baselines, (baselines.default,))
    absolute = Absolute.of_one_cell(table)
    texts = {}
    for c, cell in enumerate(table.cells):
        assert isinstance(cell, LoadedCell), "the table is of loaded cells"
        value = float(np.mean(baselines.loaded[baselines.default, cell].iops))
        texts[cell] = _figure(value)
        if absolute is not None:
            weights = np.zeros(table.logs.shape)
            weights[:, c] = table.mean_of(0, c)
            factor = absolute.factor_of(weights, _CONFIDENCE)
            ends = f"{_figure(value / factor)} to {_figure(value * factor)}"
            texts[cell] += f" ({ends})" if factor < _UNKNOWN else " (not known within a factor of 10)"
    return texts


def _words(cell: LoadedCell) -> str:
    order = "random" if cell.pattern.is_random else "sequential"
    text = f"{format_nbytes(cell.nbytes)} {order} {cell.pattern.op}"
    text += f", aligned to {format_nbytes(cell.align_nbytes)}" if cell.align_nbytes else ""
    text += {"": "", "fsync": ", flushed"}.get(cell.sync, f", {cell.sync}")
    return text + (f", {cell.iodepth} outstanding" if cell.iodepth > 1 else "")


def _place(cell: LoadedCell) -> tuple[object, ...]:
    return cell.iodepth, cell.sync, cell.align_nbytes, cell.nbytes, list(Pattern).index(cell.pattern)


def tables(folders: Mapping[str, Path]) -> Iterator[str]:
    """Return the lines of two tables of what was measured on the defaults: IOPS, and values of the workloads."""
    order = list(_HEADS)
    names = sorted(folders, key=lambda name: order.index(name) if name in order else len(order))
    heads = [_HEADS.get(name, name) for name in names]
    rates = {name: _rates(folders[name]) for name in names}
    cells = {cell for its in rates.values() for cell in its}
    rows = [[_words(cell), *(rates[name].get(cell, "") for name in names)] for cell in sorted(cells, key=_place)]
    yield from _table(("cell", *heads), rows)
    yield ""
    workloads: dict[str, dict[str, str]] = {}
    for name in names:
        for one in read_folder(folders[name]).workloads:
            values = values_of(one.samples).get(one.baselines.default, {})
            texts = (f"{value:.5g}" for value in values.values())
            workloads.setdefault(one.workload, {})[name] = ", ".join(texts)
    yield from _table(
        ("workload", *heads), [[w, *(its.get(n, "") for n in names)] for w, its in workloads.items()]
    )


HWANG = DATA / "hwang2014" / "filebench.csv"
"""Tables 6.2, 6.3 and B.1 of "Benchmarking of IP-based Network Storage Systems" (Hwang 2014)."""
_PERSONALITIES = {"mail": "varmail", "file-server": "fileserver"}
"""Workloads here that have the mix of one of his."""
_HIS_TARGETS = ("iscsi", "nfs", "swift")
_HIS_NETWORKS = {
    "ideal": Distance(),
    "latency": Distance(0.025),
    "latency+loss": Distance(0.025, loss=0.001),
}
"""His scenarios without jitter, which the model does not know."""


def networks(folders: Mapping[str, Path]) -> Iterator[str]:
    """Return the lines of a table: the order of three targets on his networks, by his tables and by `advise`."""
    model = predictor(MODELS[0], confidence=DEFAULT_CONFIDENCE, with_error=True)
    cases = {target: read_folder(folders[target]).workloads for target in _HIS_TARGETS}
    rows, n_alike, n_named = [], 0, 0
    lines = (line for line in HWANG.read_text().splitlines() if not line.startswith("#"))
    his = [row for row in csv.DictReader(lines) if row["scenario"] in _HIS_NETWORKS]
    for workload, personality in _PERSONALITIES.items():
        for row in his:
            rates = {t: _best(row, f"{personality}_{t}") for t in _HIS_TARGETS}
            network = replace(_HIS_NETWORKS[row["scenario"]], nbytes_per_s=float(row["network_mbps"]) * 1e6 / 8)
            advices = [
                advised(model, one.profile, one.baselines, network, target=target)
                for target, workloads in cases.items()
                for one in workloads
                if one.workload == workload
            ]
            first, as_fast = fastest(advices)
            ours = {a.target: a.supply.own_depth.value for a in advices if a.supply is not None}
            orders = [sorted(its, key=its.__getitem__, reverse=True) for its in (rates, ours)]
            n_alike += orders[0] == orders[1]
            n_named += orders[0][0] in (first.target, *as_fast)
            name = f"{row['network_mbps']} Mbit/s, {row['scenario'].replace('+', ', ')}"
            texts = (_in_order(order, its) for order, its in zip(orders, (rates, ours), strict=True))
            rows.append([workload, name, *texts, ", ".join((first.target, *as_fast))])
    yield from _table(("workload", "network", "Hwang, operations/s", "served here, accesses/s", "advised"), rows)
    yield f"\nhis first is advised in {n_named} of {len(rows)}, the whole order is alike in {n_alike}"


def _best(row: Mapping[str, str], column: str) -> float:
    """Return a rate of his; of iSCSI, that of the better scheduler."""
    return max(float(value) for key, value in row.items() if key.startswith(column) and value)


def _in_order(order: Sequence[str], rates: Mapping[str, float]) -> str:
    return ", ".join(f"{target} {_figure(rates[target])}" for target in order)


def folders_of(folder: Path) -> Mapping[str, Path]:
    """Return the evaluation folders in a folder, or the folder itself, by name."""
    if (folder / BASELINES_FILE).is_file():
        return {folder.name: folder}
    return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{BASELINES_FILE}"))}


def report(folders: Mapping[str, Path], without: Collection[str] = ()) -> Iterator[str]:
    """Return all lines."""
    cases = cases_of(folders, without)
    for target in folders:
        yield from of_target(target, [by_target[target] for by_target in cases.values() if target in by_target])
    between = (Between.of(workload, by_target) for workload, by_target in cases.items())
    yield from of_all([one for one in between if one is not None])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, nargs="?", help="with an evaluation folder for each target")
    arguments.add_argument("--without", nargs="+", default=(), help="configurations to leave out")
    arguments.add_argument("--tables", action="store_true", help="only the tables of what was measured")
    arguments.add_argument("--networks", action="store_true", help="only the order on Hwang's networks")
    asked = arguments.parse_args()
    folder = asked.folder
    if folder is None and (asked.tables or asked.networks):
        arguments.error("--tables and --networks need a folder")
    if folder is None:
        for name in KEPT:
            print("\n".join(report({name: DATA / name}, asked.without)))
        return
    if not (folders := folders_of(folder)):
        arguments.error(f"{folder} has no evaluation folder: none has a {BASELINES_FILE}")
    if asked.networks:
        print("\n".join(networks(folders)))
        return
    print("\n".join(tables(folders) if asked.tables else report(folders, asked.without)))


if __name__ == "__main__":
    main()

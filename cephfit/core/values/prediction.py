"""Predictions of one workload or many, their JSON form for other programs, and the models that make them.

The models are declared here once: commands offer them, the mapper implements them, and reports name them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import InputError
from cephfit.core.tabular import Table, Tabular
from cephfit.core.values.cells import Cell

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Model:
    """One prediction model.

    Attributes:
        name: as in options, stored predictions and reports.
        sentence: its description, printed after the name; without a full stop.
        adds_time: the mix adds up as time. Then the ratio of two configurations X and Y is T_Y / T_X, which can be
            compared with 1 directly (``Predictor.against``). Else relative rates add up, weighted by accesses.
        by_waiting: demands weigh what the trace waited for them on the default. Where the trace does not tell,
            ``time`` answers instead.
        all_random: treat all accesses as random (True) or as sequential (False); None: as in the profile.
    """

    name: str
    sentence: str
    adds_time: bool = False
    by_waiting: bool = False
    all_random: bool | None = None


_ADDS_RATES = "adds relative rates, not time: a cell that got faster counts for more than it saves"

MODELS = (
    Model(
        "waiting",
        "what the workload waited for on the default grows or shrinks with the time per access; the rest of its "
        "time stays",
        adds_time=True,
        by_waiting=True,
    ),
    Model(
        "time",
        "the mix adds up as time (a weighted harmonic mean of the rates): slow cells count for what they cost",
        adds_time=True,
    ),
    Model("meyer", f"Meyer's Formula 2.1, which {_ADDS_RATES}"),
    Model(
        "meyer-random", f"Meyer's Formula 2.1 with every access taken as random; it {_ADDS_RATES}", all_random=True
    ),
    Model(
        "meyer-sequential",
        f"Meyer's Formula 2.1 with every access taken as sequential; it {_ADDS_RATES}",
        all_random=False,
    ),
)
"""The first model is the default."""

LEARNED = "learned"
"""Name of the model that corrects another one by verified runs. It needs their results, so ``MODELS`` lacks it."""
_LEARNED = Model(
    LEARNED,
    "gains and losses of the analytic model, corrected by what it missed on workloads that were really run",
    adds_time=True,
)

DEFAULT_CONFIDENCE = 0.95
"""Default level of intervals."""


def model_called(name: str) -> Model:
    """Return the model of this name; a generic one for a name that a later version of cephfit stored."""
    unknown = Model(name, "a model that this version of cephfit does not know")
    return next((model for model in (*MODELS, _LEARNED) if model.name == name), unknown)


PREDICTIONS_SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """The conclusion that the interval allows about the difference from the default.

    Attributes:
        BETTER: the whole interval is above 100.
        WORSE: the whole interval is below 100.
        INDISTINGUISHABLE: the interval contains 100, or there is none.
        DEFAULT: of the default itself.
    """

    BETTER = "better"
    WORSE = "worse"
    INDISTINGUISHABLE = "not distinguishable"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class CellReason:
    """The contribution of one cell to a prediction.

    Attributes:
        cell: which of the 20.
        weight: the cell's part of the workload, 0 to 1; over all cells the sum is 1. For ``meyer`` the part of
            the accesses, for ``time`` the part of the default's time.
        relative: the configuration's rate in the cell, default = 100.
        points: contribution of the cell in points of ``relative``; the sum over cells is the prediction minus
            100.
    """

    cell: Cell
    weight: float
    relative: float
    points: float


def spread_of_ratios(reasons: Sequence[CellReason]) -> float:
    """Return the standard deviation of the logs of the cells' ratios by their weights; 0 without cells."""
    total = math.fsum(r.weight for r in reasons)
    if not total:
        return 0.0
    mean = math.fsum(r.weight * math.log(r.relative) for r in reasons) / total
    return math.sqrt(math.fsum(r.weight * (math.log(r.relative) - mean) ** 2 for r in reasons) / total)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A configuration's performance for a profile relative to the default.

    Attributes:
        configuration: name.
        relative: default = 100, more is better.
        low: lower end of the interval.
        high: upper end of the interval.
        verdict: from the interval.
        reasons: the cells that matter, most important first.
        scatter_low: lower end of the interval without the model's own error; None if unknown.
        scatter_high: its upper end.
    """

    configuration: str
    relative: float
    low: float
    high: float
    verdict: Verdict
    reasons: tuple[CellReason, ...] = ()
    scatter_low: float | None = None
    scatter_high: float | None = None

    @property
    def spread(self) -> float:
        """Standard deviation of the logs of the ratios over the cells of the workload, by their weights."""
        return spread_of_ratios(self.reasons)

    @property
    def error_share(self) -> float | None:
        """Share of the model's own error in the squared width of the interval, in logs, 0 to 1.

        None for the default, and where the error is 0 or an end is open.
        """
        ends = (self.low, self.high, self.scatter_low or 0.0, self.scatter_high or math.inf)
        if not all(0 < end < math.inf for end in ends) or self.low == self.high:
            return None
        whole, scatter = math.log(ends[1] / ends[0]), math.log(ends[3] / ends[2])
        return None if whole <= scatter else 1 - (scatter / whole) ** 2

    def __post_init__(self) -> None:
        if not self.low <= self.relative <= self.high:
            raise ValueError(f"{self.configuration}: {self.relative} is outside {self.low}..{self.high}")


@dataclass(frozen=True, slots=True)
class PredictionSet(Tabular):
    """The answer to "which configuration for this workload".

    Attributes:
        model: name of the model: ``meyer``, ``meyer-random``, ``meyer-sequential`` or ``time``.
        profile: name of the profile.
        baselines: source of the baselines.
        predictions: every configuration, best first.
        best: name of the best configuration that the measurements distinguish from the default as better, else the
            default's. Its verdict may still be open: that contains the error of the model, and holds
            jointly, while the best is chosen by itself where rates follow from others (docs/mathematics.md).
        worst: name of the worst configuration that they distinguish as worse, else the default's.
        confidence: level of the intervals, jointly over all configurations.
        noise_floor: smallest significant difference from the default, in points of ``relative``, that these
            samples allow: 100 * (1 - exp(-w)), with w the half width of the log interval (Student's quantile times
            the standard error) of a configuration with the default's rates; the minimum over the compared
            configurations, or the smallest difference that was significant, if less. Infinite without spread. For
            the probability to find an effect of a given size see docs/evidence.md, "Power".
        notes: caveats for the reader, such as cells without spread.
        as_good: configurations other than the default whose difference from ``best`` is not significant; empty if
            ``best`` is the default. Models that add time (``Model.adds_time``) compare them with ``best``
            directly, jointly at ``confidence``. In Formula 2.1 (``meyer`` and its readings) the ratio of two
            configurations depends on the default, so that only the intervals relative to the default can be used:
            all configurations whose interval overlaps that of ``best`` are named. This is conservative: both
            intervals contain the noise of the default, so that some named ones may differ
            (docs/mathematics.md, "The best compared with the next").
    """

    model: str
    profile: str
    baselines: str
    predictions: tuple[Prediction, ...]
    best: str
    worst: str
    confidence: float
    noise_floor: float
    notes: tuple[str, ...] = field(default_factory=tuple)
    as_good: tuple[str, ...] = ()

    def of(self, configuration: str) -> Prediction:
        """Return the prediction of a configuration.

        Raises:
            InputError: there is none.
        """
        found = next((p for p in self.predictions if p.configuration == configuration), None)
        if found is None:
            raise InputError(
                f"there is no prediction of {configuration!r}",
                remedy=f"choose from: {listed([p.configuration for p in self.predictions])}",
            )
        return found

    def _table(self) -> Table:
        return Table(
            f"Workload {self.profile}, model {self.model}, default = 100: best {self.best}, worst {self.worst}",
            ("configuration", "relative", "low", "high", "verdict"),
            tuple((p.configuration, p.relative, p.low, p.high, p.verdict.value) for p in self.predictions),
            self.notes,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the predictions as JSON values. An infinite end of an interval is written as null."""
        return {
            "schema_version": PREDICTIONS_SCHEMA_VERSION,
            "model": self.model,
            "profile": self.profile,
            "baselines": self.baselines,
            "confidence": self.confidence,
            "noise_floor": _finite(self.noise_floor),
            "best": self.best,
            "worst": self.worst,
            "as_good": list(self.as_good),
            "predictions": [
                {
                    "configuration": p.configuration,
                    "relative": p.relative,
                    "low": _finite(p.low),
                    "high": _finite(p.high),
                    "verdict": p.verdict.value,
                    **_scatter(p),
                    "reasons": [
                        {"cell": str(r.cell), "weight": r.weight, "relative": r.relative, "points": r.points}
                        for r in p.reasons
                    ],
                }
                for p in self.predictions
            ],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, document: Any, *, where: str = "predictions") -> PredictionSet:
        """Read what ``to_json`` wrote.

        Raises:
            InputError: another schema version, or a part is missing, of the wrong type or impossible.
        """
        if not isinstance(document, Mapping):
            raise InputError("predictions are a JSON object", where=where)
        version = document.get("schema_version")
        if version != PREDICTIONS_SCHEMA_VERSION:
            raise InputError(
                f"schema_version is {version!r}, this cephfit reads {PREDICTIONS_SCHEMA_VERSION}",
                where=where,
                remedy="make the predictions again with `cephfit map`",
            )
        try:
            noise_floor = document["noise_floor"]
            return cls(
                model=str(document["model"]),
                profile=str(document["profile"]),
                baselines=str(document["baselines"]),
                predictions=tuple(_prediction(row) for row in document["predictions"]),
                best=str(document["best"]),
                worst=str(document["worst"]),
                confidence=float(document["confidence"]),
                noise_floor=math.inf if noise_floor is None else float(noise_floor),
                notes=tuple(str(note) for note in document.get("notes", ())),
                as_good=tuple(str(name) for name in document.get("as_good", ())),
            )
        except KeyError as error:
            raise InputError(f"{error.args[0]!r} is missing", where=where) from None
        except (TypeError, ValueError) as error:
            raise InputError(f"these are not predictions: {error}", where=where) from None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _scatter(p: Prediction) -> dict[str, float | None]:
    """Return the interval without the model's own error; nothing where it is unknown."""
    if p.scatter_low is None or p.scatter_high is None:
        return {}
    return {"scatter_low": _finite(p.scatter_low), "scatter_high": _finite(p.scatter_high)}


def _prediction(row: Any) -> Prediction:
    low, high = row["low"], row["high"]
    return Prediction(
        configuration=str(row["configuration"]),
        relative=float(row["relative"]),
        low=-math.inf if low is None else float(low),
        high=math.inf if high is None else float(high),
        verdict=Verdict(row["verdict"]),
        reasons=tuple(
            CellReason(
                Cell.parse(r["cell"], where="predictions"),
                float(r["weight"]),
                float(r["relative"]),
                float(r["points"]),
            )
            for r in row.get("reasons", ())
        ),
        scatter_low=_end(row, "scatter_low", -math.inf),
        scatter_high=_end(row, "scatter_high", math.inf),
    )


def _end(row: Any, name: str, infinite: float) -> float | None:
    if name not in row:
        return None
    return infinite if row[name] is None else float(row[name])


@dataclass(frozen=True, slots=True, eq=False)
class ManyPredictions(Tabular):
    """The performance of K configurations for N workloads, relative to the default.

    Attributes:
        profiles: names of the workloads, N of them.
        configurations: names, K of them, the default first.
        relative: default = 100, more is better; shape (N, K), float64. NaN where a configuration lacks a rate that
            the workload needs.
        low: lower ends of the intervals, shape (N, K).
        high: upper ends of the intervals, shape (N, K).
        best_of: index of the best configuration of each workload, shape (N,): the highest that the measurements
            distinguish from the default as better, else 0, the default.
        models: name of the model that answers for each workload, N of them.
        baselines: source of the rates.
        confidence: level of the intervals, joint over the configurations of each workload.
        notes: caveats for the reader.
    """

    profiles: tuple[str, ...]
    configurations: tuple[str, ...]
    relative: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    best_of: NDArray[np.intp]
    models: tuple[str, ...]
    baselines: str
    confidence: float
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[str, ...]:
        """The name of the best configuration of each workload."""
        return tuple(self.configurations[k] for k in self.best_of.tolist())

    def _table(self) -> Table:
        rows = tuple(
            (
                *(self.profiles[i], self.models[i], self.configurations[k]),
                *(float(ends[i, k]) for ends in (self.relative, self.low, self.high)),
            )
            for i, k in enumerate(self.best_of.tolist())
        )
        return Table(
            f"{len(self.profiles)} workloads, {len(self.configurations)} configurations, default = 100: the best "
            "for each workload",
            ("profile", "model", "best", "relative", "low", "high"),
            rows,
            self.notes,
        )


MOST_NAMED = 12
"""Configurations that a line names at most; the table has all."""


def listed(names: Sequence[str]) -> str:
    """Name some configurations and count the rest: ``a, b and 100 more``; ``a, b, c`` if there are few."""
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"

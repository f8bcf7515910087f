"""Predictions and what they say."""

from dataclasses import dataclass, field
from enum import StrEnum

from cephfit.cells import Cell


class Verdict(StrEnum):
    """What the interval allows to say against the default."""

    BETTER = "better"
    WORSE = "worse"
    INDISTINGUISHABLE = "not distinguishable"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class CellReason:
    """What one cell adds to a prediction.

    Attributes:
        cell: which of the 20.
        weight: the cell's part of the workload, 0 to 1; over all cells the sum is 1. For ``meyer`` the part of
            the accesses, for ``time`` the part of the default's time.
        relative: the configuration's rate in the cell, default = 100.
        points: what the cell moves the prediction by, in points of ``relative``; the sum over cells is
            the prediction minus 100 for ``meyer`` and to first order for ``time``.
    """

    cell: Cell
    weight: float
    relative: float
    points: float


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
    """

    configuration: str
    relative: float
    low: float
    high: float
    verdict: Verdict
    reasons: tuple[CellReason, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.relative <= self.high:
            raise ValueError(f"{self.configuration}: {self.relative} is outside {self.low}..{self.high}")


@dataclass(frozen=True, slots=True)
class PredictionSet:
    """The answer to "which configuration for this workload".

    Attributes:
        model: which predictor speaks: ``meyer``, ``meyer-random``, ``meyer-sequential`` or ``time``.
        profile: name of the profile.
        baselines: source of the baselines.
        predictions: every configuration, best first.
        best: name of the best configuration that is distinguishably better than the default, else the default's.
        worst: name of the worst configuration that is distinguishably worse than the default, else the default's.
        confidence: level of the intervals, jointly over all configurations.
        noise_floor: smallest difference from the default, in points, that the samples could have shown.
        notes: what a reader must know, such as cells without spread.
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

    def of(self, configuration: str) -> Prediction:
        return next(p for p in self.predictions if p.configuration == configuration)

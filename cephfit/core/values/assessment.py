"""The accuracy of a prediction: predicted and measured performance of the real workload."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE

ASSESSMENT_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class AssessmentRow:
    """One configuration that the real workload ran on. Relative figures have the default = 100.

    Attributes:
        configuration: name.
        predicted_relative: the prediction.
        predicted_low: lower end of its interval; None where it has no finite one.
        predicted_high: upper end of its interval; None where it has no finite one.
        measured_relative: relative to the default, geometric means with the shift of each round eliminated;
            None if no run gave a value.
        measured_low: lower end of the measured interval; None if there are too few runs.
        measured_high: upper end of the measured interval; None if there are too few runs.
        values: the metric of every ok run, in order of repeat.
        io_per_operation: I/Os of the workload's devices per operation, relative to the default = 1; None if they
            were not counted. Storage can be compared only for equal I/O: a workload that fills its own cache reads
            less per operation the more operations it does.
        cpu_busy: share of the CPUs of the machine that ran the workload that was busy, 0 to 1, mean of the runs;
            None if it was not measured. Busy CPUs limit a workload whatever the storage can do.
    """

    configuration: str
    predicted_relative: float
    predicted_low: float | None
    predicted_high: float | None
    measured_relative: float | None
    measured_low: float | None
    measured_high: float | None
    values: tuple[float, ...]
    io_per_operation: float | None = None
    cpu_busy: float | None = None

    @property
    def n(self) -> int:
        """Number of runs with a value."""
        return len(self.values)

    @property
    def error_points(self) -> float | None:
        """Predicted minus measured, in percentage points of the default; None if nothing was measured."""
        return None if self.measured_relative is None else self.predicted_relative - self.measured_relative

    @property
    def error_interval(self) -> tuple[float, float] | None:
        """The error's interval, from those of the two: (P - M) - √((P - lP)² + (uM - M)²) to the same upwards.

        Prediction and runs are independent. The level of this interval is at least the lower of the two levels
        (Zou and Donner 2008, Statistics in Medicine 27:1693). None for the default, to which both are relative,
        and where an interval is unknown.
        """
        p, m, error = self.predicted_relative, self.measured_relative, self.error_points
        ends = (self.predicted_low, self.predicted_high, self.measured_low, self.measured_high)
        if m is None or error is None or None in ends or self.predicted_low == self.predicted_high:
            return None
        p_low, p_high, m_low, m_high = (end for end in ends if end is not None)
        return error - math.hypot(p - p_low, m_high - m), error + math.hypot(p_high - p, m - m_low)

    @property
    def outside(self) -> str:
        """Position of the measured interval: ``below`` or ``above`` the predicted one; empty if they overlap."""
        if self.predicted_low == self.predicted_high:
            return ""  # the default, to which all is relative
        if (
            self.measured_high is not None
            and self.predicted_low is not None
            and self.measured_high < self.predicted_low
        ):
            return "below"
        if (
            self.measured_low is not None
            and self.predicted_high is not None
            and self.measured_low > self.predicted_high
        ):
            return "above"
        return ""


@dataclass(frozen=True, slots=True)
class Assessment:
    """Predicted and measured performance of one real workload.

    Attributes:
        workload: name of the real workload, for example ``pgbench``.
        metric: what its values are, for example ``tps``; more is better.
        model: name of the model that predicted.
        rows: one per configuration that was run, predicted best first.
        order_held: whether the measured order is the predicted one: at least one pair differs significantly in the
            predicted direction, and none in the other. None if no such pair differs significantly, fewer than two
            configurations could be measured, or the predicted intervals overlap and give no order.
        regret_pct: loss from choosing the predicted best instead of the measured best configuration, in per cent
            of the latter's metric: 0 if both are the same. None if the predicted best could not be measured.
        confidence: level of the measured intervals.
        notes: caveats for the reader.
        regret_low_pct: lower end of the regret's interval; 0 if no configuration is significantly better than the
            predicted best; None if there are too few runs for an interval.
        regret_high_pct: its upper end; 0 if the predicted best is significantly better than all others.
        ties: pairs of configurations without a significant difference, the one predicted to be better first; None
            in documents from older versions, which did not store them.
    """

    workload: str
    metric: str
    model: str
    rows: tuple[AssessmentRow, ...]
    order_held: bool | None
    regret_pct: float | None
    confidence: float = DEFAULT_CONFIDENCE
    notes: tuple[str, ...] = field(default_factory=tuple)
    regret_low_pct: float | None = None
    regret_high_pct: float | None = None
    ties: tuple[tuple[str, str], ...] | None = None

    def of(self, configuration: str) -> AssessmentRow | None:
        """Return the row of ``configuration``; None if it was not run."""
        return next((row for row in self.rows if row.configuration == configuration), None)

    @property
    def in_order(self) -> bool:
        """Whether the predicted intervals of any two measured configurations are disjoint and give an order."""
        ends = [
            (-math.inf if r.predicted_low is None else r.predicted_low, r.predicted_high)
            for r in self.rows
            if r.measured_relative is not None
        ]
        return any(high is not None and high < low for (low, _), (_, high) in itertools.permutations(ends, 2))

    def regret_text(self) -> str:
        """Return the regret and its interval as text; empty if there is none."""
        if self.regret_pct is None:
            return ""
        if self.regret_low_pct is None or self.regret_high_pct is None:
            return f"{self.regret_pct:.1f} %, its interval is unknown"
        if self.regret_high_pct <= 0:
            fastest = max(self.rows, key=lambda row: row.measured_relative or 0.0).configuration
            if any(fastest in pair for pair in self.ties or ()):
                return (
                    "0 %: the predicted best is ahead of all others that were run, in intervals of the "
                    "comparisons with it alone; those of all pairs are wider"
                )
            return "0 %: the predicted best is distinguishable from all others that were run"
        if self.regret_low_pct <= 0:
            return f"not distinguishable from 0 (at most {self.regret_high_pct:.1f} %)"
        return f"{self.regret_pct:.1f} % ({self.regret_low_pct:.1f} to {self.regret_high_pct:.1f})"

    def missed(self) -> tuple[str, ...]:
        """Sentences on configurations whose measured interval is outside the predicted one."""
        found = []
        for side in ("below", "above"):
            names = [row.configuration for row in self.rows if row.outside == side]
            if names:
                found.append(f"Measured {side} the predicted interval: {', '.join(names)}.")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Return the store's "verification" document."""
        return {
            "schema_version": ASSESSMENT_SCHEMA_VERSION,
            "workload": self.workload,
            "metric": self.metric,
            "model": self.model,
            "confidence": self.confidence,
            "order_held": self.order_held,
            "regret_pct": self.regret_pct,
            "regret_low_pct": self.regret_low_pct,
            "regret_high_pct": self.regret_high_pct,
            "ties": None if self.ties is None else [list(pair) for pair in self.ties],
            "rows": [
                {
                    "configuration": row.configuration,
                    "predicted": {
                        "relative": row.predicted_relative,
                        "low": row.predicted_low,
                        "high": row.predicted_high,
                    },
                    "measured": {
                        "relative": row.measured_relative,
                        "low": row.measured_low,
                        "high": row.measured_high,
                    },
                    "n": row.n,
                    "values": list(row.values),
                    "error_points": row.error_points,
                    "io_per_operation": row.io_per_operation,
                    "cpu_busy": row.cpu_busy,
                }
                for row in self.rows
            ],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, document: Any, *, where: str = "verification") -> "Assessment":
        """Read what ``to_json`` wrote.

        Raises:
            InputError: another schema version, or a part is missing or of the wrong type.
        """
        if not isinstance(document, Mapping):
            raise InputError("a verification is a JSON object", where=where)
        version = document.get("schema_version")
        if version != ASSESSMENT_SCHEMA_VERSION:
            raise InputError(
                f"schema_version is {version!r}, this cephfit reads {ASSESSMENT_SCHEMA_VERSION}",
                where=where,
                remedy="verify again with `cephfit verify`",
            )
        try:
            order_held, ties = document["order_held"], document.get("ties")
            return cls(
                workload=str(document["workload"]),
                metric=str(document["metric"]),
                model=str(document["model"]),
                rows=tuple(_row(row) for row in document["rows"]),
                order_held=None if order_held is None else bool(order_held),
                regret_pct=_optional(document["regret_pct"]),
                confidence=float(document["confidence"]),
                notes=tuple(str(note) for note in document.get("notes", ())),
                regret_low_pct=_optional(document.get("regret_low_pct")),
                regret_high_pct=_optional(document.get("regret_high_pct")),
                ties=None if ties is None else tuple((str(ahead), str(behind)) for ahead, behind in ties),
            )
        except KeyError as error:
            raise InputError(f"{error.args[0]!r} is missing", where=where) from None
        except (TypeError, ValueError) as error:
            raise InputError(f"this is not a verification: {error}", where=where) from None


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)


def _row(row: Any) -> AssessmentRow:
    predicted, measured = row["predicted"], row["measured"]
    return AssessmentRow(
        configuration=str(row["configuration"]),
        predicted_relative=float(predicted["relative"]),
        predicted_low=_optional(predicted["low"]),
        predicted_high=_optional(predicted["high"]),
        measured_relative=_optional(measured["relative"]),
        measured_low=_optional(measured["low"]),
        measured_high=_optional(measured["high"]),
        values=tuple(float(value) for value in row["values"]),
        io_per_operation=_optional(row.get("io_per_operation")),
        cpu_busy=_optional(row.get("cpu_busy")),
    )

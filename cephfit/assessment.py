"""How good a prediction was: predicted beside measured, for the real workload."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cephfit.errors import InputError

ASSESSMENT_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class AssessmentRow:
    """One configuration that the real workload ran on. Relative figures have the default = 100.

    Attributes:
        configuration: name.
        predicted_relative: what the model said.
        predicted_low: lower end of its interval; None where it has no finite one.
        predicted_high: upper end of its interval; None where it has no finite one.
        measured_relative: over the default's, geometric means with what a round does to all its runs taken out;
            None if no run gave a value.
        measured_low: lower end of the measured interval; None if the runs are too few for one.
        measured_high: upper end of the measured interval; None if the runs are too few for one.
        values: the metric of every ok run, in order of repeat.
    """

    configuration: str
    predicted_relative: float
    predicted_low: float | None
    predicted_high: float | None
    measured_relative: float | None
    measured_low: float | None
    measured_high: float | None
    values: tuple[float, ...]

    @property
    def n(self) -> int:
        """Runs that gave a value."""
        return len(self.values)

    @property
    def error_points(self) -> float | None:
        """Predicted minus measured, in points of the default's 100; None if nothing was measured."""
        return None if self.measured_relative is None else self.predicted_relative - self.measured_relative

    @property
    def beside(self) -> str:
        """Where the measured interval lies of the predicted one: ``below``, ``above``, empty if they meet."""
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
    """Predicted beside measured.

    Attributes:
        workload: name of the real workload, for example ``pgbench``.
        metric: what its values are, for example ``tps``; more is better.
        model: the predictor that spoke.
        rows: one per configuration that was run, predicted best first.
        order_held: the measured order of the configurations run is the predicted one; ties within the
            intervals do not break it. None where fewer than two could be measured, or where the predicted
            intervals overlap and so put them in no order.
        regret_pct: what following the prediction costs against the best configuration that was run, in per
            cent of that one's measured metric: 0 when the predicted best was the best. None where the predicted
            best could not be measured.
        confidence: level of the measured intervals.
        notes: what a reader must know.
    """

    workload: str
    metric: str
    model: str
    rows: tuple[AssessmentRow, ...]
    order_held: bool | None
    regret_pct: float | None
    confidence: float = 0.95
    notes: tuple[str, ...] = field(default_factory=tuple)

    def of(self, configuration: str) -> AssessmentRow | None:
        """The row of ``configuration``; None if it was not run."""
        return next((row for row in self.rows if row.configuration == configuration), None)

    def missed(self) -> tuple[str, ...]:
        """Sentences on configurations whose measured interval lies beside the predicted one."""
        found = []
        for beside in ("below", "above"):
            names = [row.configuration for row in self.rows if row.beside == beside]
            if names:
                found.append(
                    f"Measured {beside} the predicted interval: {', '.join(names)}. Predicted intervals carry the "
                    "scatter of the benchmark, not the error of the model."
                )
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """The store's "verification" document."""
        return {
            "schema_version": ASSESSMENT_SCHEMA_VERSION,
            "workload": self.workload,
            "metric": self.metric,
            "model": self.model,
            "confidence": self.confidence,
            "order_held": self.order_held,
            "regret_pct": self.regret_pct,
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
                }
                for row in self.rows
            ],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, document: Any, *, where: str = "verification") -> "Assessment":
        """Read what ``to_json`` wrote.

        Raises:
            InputError: of another schema version, a part is missing or of the wrong type.
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
            order_held = document["order_held"]
            return cls(
                workload=str(document["workload"]),
                metric=str(document["metric"]),
                model=str(document["model"]),
                rows=tuple(_row(row) for row in document["rows"]),
                order_held=None if order_held is None else bool(order_held),
                regret_pct=_optional(document["regret_pct"]),
                confidence=float(document["confidence"]),
                notes=tuple(str(note) for note in document.get("notes", ())),
            )
        except KeyError as error:
            raise InputError(f"{error.args[0]!r} is missing", where=where) from None
        except (TypeError, ValueError) as error:
            raise InputError(f"this is no verification: {error}", where=where) from None


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
    )

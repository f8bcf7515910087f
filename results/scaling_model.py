"""What a report says of scaling, as frozen values; see ``report_model``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalingMark:
    """One measured point: positions in per cent of the figure's width and height, counted from its lower left."""

    x: float
    y: float
    low: float | None
    high: float | None
    title: str


@dataclass(frozen=True, slots=True)
class ScalingLine:
    """One configuration; ``style`` counts from 0 and says colour and mark."""

    configuration: str
    style: int
    marks: tuple[ScalingMark, ...]


@dataclass(frozen=True, slots=True)
class ScalingFigure:
    """One quantity of one cell over what grows."""

    title: str
    unit: str
    x_title: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    lines: tuple[ScalingLine, ...]


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One point in figures."""

    configuration: str
    x: int
    load: str
    n: int
    iops: str
    iops_interval: str
    per_client: str
    gain: str
    gain_interval: str
    latency: str
    latency_interval: str
    p99: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """One cell over what grows.

    Attributes:
        cell: name.
        along: what grows, as a heading: ``clients`` or ``iodepth``.
        fixed: what does not grow.
        figures: rate and latency.
        rows: every configuration, also those that are not drawn.
        undrawn: configurations that are in the rows alone.
    """

    cell: str
    along: str
    fixed: str
    figures: tuple[ScalingFigure, ...]
    rows: tuple[ScalingRow, ...]
    undrawn: tuple[str, ...]

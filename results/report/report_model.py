"""The content of a report as frozen values: everything that a template shows, nothing that it must compute."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from cephfit.core.protocols import Applied
from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.values.assessment import Assessment
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import OWN_LOAD, Run, WorkloadSample
from cephfit.core.values.supply import SupplySet
from cephfit.results.report.figures.cpu_figures import CpuSection
from cephfit.results.report.formatting import Axis
from cephfit.results.report.run_notes import Bottlenecks

if TYPE_CHECKING:
    from cephfit.results.report.figures.position_map import PositionMap
    from cephfit.results.report.figures.rate_over_time import RateFigure


@dataclass(frozen=True, slots=True)
class ScalingMark:
    """One measured point: positions in per cent of the figure's width and height, from its lower left."""

    x: float
    y: float
    low: float | None
    high: float | None
    title: str


@dataclass(frozen=True, slots=True)
class ScalingLine:
    """One configuration; ``style`` counts from 0 and selects colour and mark."""

    configuration: str
    style: int
    marks: tuple[ScalingMark, ...]


@dataclass(frozen=True, slots=True)
class ScalingFigure:
    """One quantity of one cell over the growing quantity."""

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
    """One cell over the growing quantity.

    Attributes:
        cell: name.
        along: the growing quantity, as a heading: ``clients`` or ``iodepth``.
        fixed: the constant part of the load.
        figures: rate and latency.
        rows: every configuration, also those that are not drawn.
        undrawn: configurations that are only in the rows.
    """

    cell: str
    along: str
    fixed: str
    figures: tuple[ScalingFigure, ...]
    rows: tuple[ScalingRow, ...]
    undrawn: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """The content of a store for one run; all except the run and its samples may be missing.

    Attributes:
        fio: fio's own JSON of one of the fio runs, parsed; it names the options.
        stopping: decisions between the rounds, and the runs that they saved; None where all repeats were taken.
        load: the load that the report covers; the samples are those of all loads.
        renewed: a sentence on the stored prediction, where the current samples give another one, or none.
        supply: what the workload needs and what each configuration serves; None without a prediction.
        continuations: sentences on other program versions with which the run was continued.
    """

    run: Run
    samples: SampleColumns
    applied: tuple[tuple[int, Applied], ...] = ()
    workload_samples: tuple[tuple[str, WorkloadSample], ...] = ()
    profile: Profile | None = None
    predictions: PredictionSet | None = None
    assessment: Assessment | None = None
    fio: Mapping[str, Any] | None = None
    stopping: Mapping[str, Any] | None = None
    store: str = ""
    load: str = OWN_LOAD
    renewed: str = ""
    continuations: tuple[str, ...] = ()
    supply: SupplySet | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The first lines.

    Attributes:
        headline: one sentence.
        sentences: what else the reader must know before acting.
        warning: a warning on all figures, such as that they are simulated; mostly empty.
    """

    headline: str
    sentences: tuple[str, ...]
    warning: str = ""


@dataclass(frozen=True, slots=True)
class RankingRow:
    """One configuration in the ranking. Figures have the default = 100."""

    configuration: str
    relative: float
    low: float
    high: float
    verdict: str
    why: str
    sets: str = ""
    """Its settings as text; empty where it has none, or was never applied."""
    error_share: float | None = None
    """As in ``Prediction``."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every configuration, predicted best first."""

    axis: Axis
    rows: tuple[RankingRow, ...]
    confidence: float
    model: str
    adds_time: bool
    """Whether the mix adds up as time in that model, so that a prediction is a ratio of rates."""
    noise_floor: float
    measured_floor: float | None = None
    """Points by which the A/A control differs from the default; None without a control."""


@dataclass(frozen=True, slots=True)
class RateText:
    """The rate at which a configuration serves the workload, as text; the sum over all clients."""

    accesses_per_s: str
    interval: str
    mib_per_s: str
    without: str = ""
    """Cells of the workload that were not measured and that the rate omits; mostly empty."""


@dataclass(frozen=True, slots=True)
class LatencyText:
    """Latency of the workload's mix under the load of the measurement in ms, as text with intervals."""

    mean_ms: str
    p99_ms: str


@dataclass(frozen=True, slots=True)
class CellWeight:
    """A cell's share of the workload and its effect on the best and the worst configuration."""

    cell: str
    weight: float
    moved: tuple[tuple[str, float, float], ...]
    """(configuration, rate relative to the default = 100, points)."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One configuration in one cell.

    Attributes:
        text: the figure relative to the default = 100, or a dash.
        level: -4 (far worse) to 4 (far better), the colour; 0 is no colour.
        distinguishable: the interval excludes 100.
        title: absolute rate, spread, interval, n; or the reason why there is no figure.
        width: of the interval, as from ``formatting.plus_minus``; empty where there is none.
    """

    text: str
    level: int
    distinguishable: bool
    title: str
    width: str = ""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Cells x configurations.

    Attributes:
        groups: (pattern, its sizes): the columns from left to right.
        weights: per column the cell's share of the workload, 0 to 1; empty without a prediction.
        default_iops: per column the default's rate.
        rows: (configuration, one HeatCell per column), without the default.
        spread_pct: pooled scatter of the repeats in per cent; None where nothing was repeated.
    """

    groups: tuple[tuple[str, tuple[str, ...]], ...]
    weights: tuple[float, ...]
    default_iops: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    confidence: float
    spread_pct: float | None

    @property
    def starts(self) -> tuple[int, ...]:
        """The columns that begin a group."""
        return tuple(accumulate((len(sizes) for _, sizes in self.groups[:-1]), initial=0))


@dataclass(frozen=True, slots=True)
class LoadedRates:
    """Rates of other sizes, depths, alignments and commits than those of the load that the report covers.

    Attributes:
        names: configurations without the default: the columns.
        rows: (size, pattern and load; the default's rate; one HeatCell per column).
        confidence: of the intervals.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[HeatCell, ...]], ...]
    confidence: float


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """One baseline in figures: IOPS, relative to the default, MiB/s, latency in ms; of all clients together."""

    configuration: str
    cell: str
    n: int
    mean: str
    median: str
    variation: str
    interval: str
    relative: str
    relative_interval: str
    mib_per_s: str
    latency_ms: str
    latency_interval: str
    p99_ms: str
    p99_interval: str
    warning: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket of a histogram: shares of the series' total, 0 to 1."""

    label: str
    shares: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """One figure of the profile.

    Attributes:
        title: the counted quantity.
        series: names, such as read and write.
        bars: in the order of the limits.
        top: the largest share, > 0: the height of the figure.
    """

    title: str
    unit: str
    series: tuple[str, ...]
    bars: tuple[Bar, ...]
    top: float


@dataclass(frozen=True, slots=True)
class Verification:
    """Predicted and measured values."""

    axis: Axis
    assessment: Assessment
    default_mean: float | None
    """Geometric mean of the default's runs, which is 100; None if it gave no value."""
    scale: str
    """The same as text."""


@dataclass(frozen=True, slots=True)
class AppliedRow:
    """A configuration as it was read back from the cluster."""

    configuration: str
    settings: tuple[tuple[str, str], ...]
    restarted: str
    seconds: str
    mismatches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """How it was measured."""

    summary: tuple[tuple[str, str], ...] = ()
    states: tuple[tuple[str, int], ...] = ()
    rejected: tuple[tuple[str, str, str], ...] = ()
    """(sample, state, reason) of the samples that are not ok, or of the first of them."""
    applied: tuple[AppliedRow, ...] = ()
    order: tuple[tuple[str, str], ...] = ()
    """(round, configurations in the order of applying)."""
    workload_runs: tuple[tuple[str, str, str, str], ...] = ()
    """(configuration, repeat, state, value) of every run of the real workload, in order."""
    fio_options: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    sweep_text: str = ""
    n_more_rejected: int = 0
    """Number of samples that are not ok and not in ``rejected``."""


@dataclass(frozen=True, slots=True)
class ReportModel:
    """Everything that a report contains; only a whole run has every part."""

    title: str
    answer: Answer
    made_at: str = ""
    """When the report was made; empty in an answer that is not kept."""
    version: str = ""
    """Of cephfit; empty in an answer that is not kept."""
    ranking: Ranking | None = None
    verification: Verification | None = None
    weights: tuple[CellWeight, ...] = ()
    heat_map: HeatMap | None = None
    loaded_rates: LoadedRates | None = None
    baselines: tuple[BaselineRow, ...] = ()
    workload: Histogram | None = None
    histograms: tuple[Histogram, ...] = ()
    caveats: tuple[str, ...] = ()
    method: Method = field(default_factory=Method)
    scaling: tuple[Scaling, ...] = ()
    bottlenecks: Bottlenecks | None = None
    cpu: CpuSection | None = None
    """Where the CPU time goes; None where it was not recorded."""
    load: str = ""
    """The load under which everything except ``scaling`` was measured, as text; empty where there is only one."""
    rates: Mapping[str, RateText] = field(default_factory=dict)
    """By configuration; none without a prediction."""
    latencies: Mapping[str, LatencyText] = field(default_factory=dict)
    """By configuration; none without a prediction."""
    percentiles: tuple[ScalingFigure, ...] = ()
    """Percentile curves of latency in the heaviest cells: of the default, the best and the worst."""
    explains: bool = True
    """Whether the prediction is the ratio of ``rates``, so that they may be shown next to it."""
    supply: SupplySet | None = None
    """What the workload needs and what each configuration serves; None where that was not asked."""
    same_rounds: bool = True
    """Whether, in each cell, all configurations with figures were measured in the same rounds."""
    rate_over_time: "RateFigure | None" = None
    """Rate of the workload over time; None if its profile does not contain it."""
    positions: "PositionMap | None" = None
    """Positions of the workload's accesses over time; None if its profile does not contain them."""
    omits_behaviour: bool = False
    """Whether a full description of the same trace would add both."""

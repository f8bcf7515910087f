"""What a report says, as frozen values: everything a template shows, nothing that it must work out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from cephfit.assessment import Assessment
from cephfit.prediction import PredictionSet
from cephfit.profile import Profile
from cephfit.protocols import Applied
from cephfit.results.axis import Axis
from cephfit.results.bottlenecks import Bottlenecks
from cephfit.results.scaling_model import Scaling
from cephfit.run import Run
from cephfit.sample import OWN_LOAD, Sample, WorkloadSample


@dataclass(frozen=True, slots=True)
class Findings:
    """What a store holds of one run; all but the run and its samples may be missing.

    Attributes:
        fio: fio's own JSON of one of the runs, parsed: it names the options.
        stopping: what was decided between the rounds, and the runs it saved; None where all repeats were taken.
        load: that the report is about; the samples are those of all loads.
        renewed: what became of the prediction that was kept, where the samples of now give another one, or none.
        continuations: sentences on programs of other versions that the run was continued with.
    """

    run: Run
    samples: tuple[Sample, ...]
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


@dataclass(frozen=True, slots=True)
class Answer:
    """The first lines.

    Attributes:
        headline: one sentence.
        sentences: what else a person must know before acting.
        warning: what makes the figures something else than they seem; empty mostly.
    """

    headline: str
    sentences: tuple[str, ...]
    warning: str = ""


@dataclass(frozen=True, slots=True)
class RankingRow:
    """One configuration's place. Figures have the default = 100."""

    configuration: str
    relative: float
    low: float
    high: float
    verdict: str
    why: str
    sets: str = ""
    """Its settings in words; empty where it has none, or was never applied."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every configuration, predicted best first."""

    axis: Axis
    rows: tuple[RankingRow, ...]
    confidence: float
    model: str
    adds_time: bool
    """Whether by that model the mix adds up as time, and a prediction is a ratio of rates."""
    noise_floor: float
    measured_floor: float | None = None
    """Points by which the default differed from itself under another name; None without such a control."""


@dataclass(frozen=True, slots=True)
class RateText:
    """How much of the workload a configuration serves, in words; of all clients together."""

    accesses_per_s: str
    interval: str
    mib_per_s: str
    without: str = ""
    """Cells of the workload that were not measured and that the rate leaves out; empty mostly."""


@dataclass(frozen=True, slots=True)
class CellWeight:
    """A cell's part of the workload and what it does to the best and the worst configuration."""

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
        distinguishable: the interval leaves out 100.
        title: absolute rate, spread, interval, n; or why there is nothing.
        width: of the interval, as ``words.plus_minus``; empty where there is none.
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
        weights: per column the cell's part of the workload, 0 to 1; empty without a prediction.
        default_iops: per column the default's rate.
        rows: (configuration, one HeatCell per column), the default left out.
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
        title: what is counted.
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
    """Predicted beside measured."""

    axis: Axis
    assessment: Assessment
    default_mean: float | None
    """Geometric mean of the default's runs: what 100 is; None if it gave no value."""
    scale: str
    """The same in words."""


@dataclass(frozen=True, slots=True)
class AppliedRow:
    """A configuration as it was found on the cluster."""

    configuration: str
    settings: tuple[tuple[str, str], ...]
    restarted: str
    seconds: str
    mismatches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """How it was measured."""

    summary: tuple[tuple[str, str], ...]
    states: tuple[tuple[str, int], ...]
    troubles: tuple[tuple[str, str, str], ...]
    """(sample, state, reason) of all that is not ok, or of the first of them."""
    applied: tuple[AppliedRow, ...]
    order: tuple[tuple[str, str], ...]
    """(round, configurations in the order of applying)."""
    workload_runs: tuple[tuple[str, str, str, str], ...]
    """(configuration, repeat, state, value) of every run of the real workload, in order."""
    fio_options: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    sweep_text: str
    n_more_troubles: int = 0
    """Of which ``troubles`` tells nothing."""


@dataclass(frozen=True, slots=True)
class ReportModel:
    """Everything a report says."""

    title: str
    made_at: str
    version: str
    answer: Answer
    ranking: Ranking | None
    verification: Verification | None
    weights: tuple[CellWeight, ...]
    heat_map: HeatMap | None
    baselines: tuple[BaselineRow, ...]
    workload: Histogram | None
    histograms: tuple[Histogram, ...]
    caveats: tuple[str, ...]
    method: Method
    scaling: tuple[Scaling, ...] = ()
    bottlenecks: Bottlenecks | None = None
    load: str = ""
    """Under which load everything but ``scaling`` was measured, in words; empty where there is only one."""
    rates: Mapping[str, RateText] = field(default_factory=dict)
    """By configuration; none without a prediction."""
    same_rounds: bool = True
    """Whether, in each cell, all configurations that have figures have them from the same rounds."""

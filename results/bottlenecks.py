"""What the runs were bound by, as those who watched hosts and daemons during them say."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.cells import Pattern
from cephfit.sample import Sample, State

_CAUSES_NAMED = 3


@dataclass(frozen=True, slots=True)
class BottleneckRow:
    """One configuration.

    Attributes:
        configuration: name.
        causes: per pattern of ``Bottlenecks.patterns`` the causes with their shares of the runs; empty: not seen.
        example: what was said of the run with the most frequent cause.
    """

    configuration: str
    causes: tuple[str, ...]
    example: str


@dataclass(frozen=True, slots=True)
class Bottlenecks:
    """Configurations x patterns.

    Attributes:
        patterns: fio's names.
        rows: in the order of first appearance.
        n_runs: that were watched.
        n_unsteady: of the samples whose rate was followed, those where it was not steady.
        n_followed: samples whose rate was followed.
    """

    patterns: tuple[str, ...]
    rows: tuple[BottleneckRow, ...]
    n_runs: int
    n_unsteady: int
    n_followed: int


def bottlenecks_of(samples: Iterable[Sample], *, load: str) -> Bottlenecks | None:
    """What held the ok runs of a load back; None where nobody watched."""
    told: dict[str, dict[Pattern, list[Mapping[str, Any]]]] = {}
    followed = []
    for sample in samples:
        if sample.state is not State.OK or sample.key.load != load:
            continue
        if (steadiness := sample.evidence.get("steadiness")) is not None:
            followed.append(bool(steadiness["steady"]))
        if (used := sample.evidence.get("used")) and (said := used.get("bottleneck")):
            patterns = told.setdefault(sample.key.configuration, {})
            patterns.setdefault(sample.key.cell.pattern, []).append(said)
    seen = [p for p in Pattern if any(p in patterns for patterns in told.values())]
    if not seen:
        return None
    rows = [_row(name, [patterns.get(p, []) for p in seen]) for name, patterns in told.items()]
    n_runs = sum(len(said) for patterns in told.values() for said in patterns.values())
    return Bottlenecks(tuple(p.value for p in seen), tuple(rows), n_runs, followed.count(False), len(followed))


def _row(name: str, by_pattern: list[list[Mapping[str, Any]]]) -> BottleneckRow:
    every = [said for some in by_pattern for said in some]
    most = Counter(said["what"] for said in every).most_common(1)[0][0]
    example = next(said["sentence"] for said in every if said["what"] == most)
    return BottleneckRow(name, tuple(map(_causes, by_pattern)), example)


def _causes(said: list[Mapping[str, Any]]) -> str:
    counts = Counter(one["what"] for one in said).most_common(_CAUSES_NAMED)
    return ", ".join(f"{what} {100 * n / len(said):.0f} %" for what, n in counts)

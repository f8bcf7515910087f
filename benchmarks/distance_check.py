"""The distance model against a lab with an emulated distance: prints the tables of docs/distance.md.

`data/distance/lab.yaml` is the sweep, `data/distance/baselines.csv` its rates, as `cephfit report --format csv --what
baselines` wrote them, and `data/distance/path.json` what the path itself measured (`cephfit lab network --json`). The
rates of each configuration with a distance are predicted from those of A, which has none.

    .venv/bin/python benchmarks/distance_check.py
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import LoadedCell
from cephfit.mapper.distance import Distance, baselines_at_distance
from cephfit.results import open_baselines

DATA = Path(__file__).resolve().parent / "data" / "distance"
DISTANCES: Mapping[str, Distance] = {
    "one-way-2ms": Distance(0.002, rtt_per_flush=0),
    "one-way-8ms": Distance(0.008, rtt_per_flush=0),
    "loss-8ms": Distance(0.008, rtt_per_flush=0, loss=0.01),
    "rate-2ms": Distance(0.002, rtt_per_flush=0, nbytes_per_s=100e6 / 8),
}
"""By configuration of the sweep. librbd without a cache has nothing to flush."""
TITLES = {
    "one-way-2ms": "2 ms each way",
    "one-way-8ms": "8 ms each way",
    "loss-8ms": "8 ms each way, 1 % loss",
    "rate-2ms": "2 ms each way, 100 Mbit/s",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A cell at a distance.

    Attributes:
        near: rate without a distance, per second.
        predicted: from ``near``.
        measured: at the distance.
        scatter: standard error of ``predicted`` / ``measured`` from the repeats of both; NaN with one repeat.
    """

    near: float
    predicted: float
    measured: float
    scatter: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def _mean(baseline: Baseline) -> float:
    return math.fsum(baseline.iops) / len(baseline.iops)


def _relative_error(baseline: Baseline) -> float:
    if len(baseline.iops) < 2:
        return math.nan
    return float(np.std(baseline.iops, ddof=1) / math.sqrt(len(baseline.iops)) / _mean(baseline))


def checks(baselines: Baselines) -> dict[tuple[str, LoadedCell], Check]:
    """Return a check for each configuration with a distance and each cell."""
    found = {}
    for name, distance in DISTANCES.items():
        far = baselines_at_distance(baselines, distance).baselines
        for (configuration, cell), measured in baselines.loaded.items():
            if configuration == name:
                predicted = far.loaded[baselines.default, cell]
                found[name, cell] = Check(
                    _mean(baselines.loaded[baselines.default, cell]),
                    _mean(predicted),
                    _mean(measured),
                    math.hypot(_relative_error(predicted), _relative_error(measured)),
                )
    return found


def _rates() -> list[str]:
    found = checks(open_baselines(str(DATA / "baselines.csv")))
    lines = [
        "| distance | cell | rate without it, per s | predicted | measured | error | its scatter |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, cell), its in sorted(found.items(), key=lambda item: (list(TITLES).index(item[0][0]), item[0][1])):
        lines.append(
            f"| {TITLES[name]} | {cell} | {its.near:.1f} | {its.predicted:.1f} | {its.measured:.1f} | "
            f"{100 * its.error:+.1f} % | {100 * its.scatter:.1f} % |"
        )
    return lines


def _path() -> list[str]:
    lines = [
        "| asked for | round trip: asked, measured | deviation | loss each way | TCP connection, Mbit/s |",
        "|---|---|---|---|---|",
    ]
    for row in json.loads((DATA / "path.json").read_text()):
        asked, its = row["asked"], row["measured"]
        words = [f"{asked['delay_ms']:g} ms"]
        words += [f"{asked['jitter_ms']:g} ms of jitter"] if asked["jitter_ms"] else []
        words += [f"{asked['loss_pct']:g} % loss"] if asked["loss_pct"] else []
        words += [f"{asked['rate_mbit']:g} Mbit/s"] if asked["rate_mbit"] else []
        rate = "" if its["mbit_per_s"] is None else f"{its['mbit_per_s']:.0f}"
        lines.append(
            f"| {', '.join(words)} | {2 * asked['delay_ms']:g} ms, {its['rtt_ms']:.2f} ms | {its['rtt_sd_ms']:.2f} ms "
            f"| {its['loss_pct']:.1f} % | {rate} |"
        )
    return lines


TABLES: Mapping[str, Callable[[], list[str]]] = {"rates": _rates, "path": _path}


def main() -> None:
    for name, lines in TABLES.items():
        print(f"{name}\n", *lines(), "", sep="\n")


if __name__ == "__main__":
    main()

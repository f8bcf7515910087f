"""The distance model against a lab with an emulated distance: prints the tables of docs/distance.md.

`distance_runs.py` measured `data/distance/baselines.csv` (rates and latencies) and `data/distance/path.json` (the
path itself). Rates at each distance are predicted from those of A, which has none. With one access outstanding,
each access takes longer by the round trip, so that the median latency is predicted too: on a busy machine it is
less affected than the mean. Writes are masked, with the median latency without a distance as T_ack.

    .venv/bin/python benchmarks/distance_check.py
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import LoadedCell, Op
from cephfit.mapper.extrapolation.distance import Distance, baselines_at_distance
from cephfit.results import open_baselines

DATA = Path(__file__).resolve().parent / "data" / "distance"
DISTANCES: Mapping[str, Distance] = {
    "one-way-2ms": Distance(0.002),
    "one-way-8ms": Distance(0.008),
    "loss-8ms": Distance(0.008, loss=0.01, loss_is_congestion=False),
    "rate-2ms": Distance(0.002, nbytes_per_s=100e6 / 8),
}
"""By configuration of the runs. The machine's TCP was BBR."""
_GOAL = 0.10
TITLES = {
    "one-way-2ms": "2 ms each way",
    "one-way-8ms": "8 ms each way",
    "loss-8ms": "8 ms each way, 1 % loss",
    "rate-2ms": "2 ms each way, 100 Mbit/s",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A figure of a cell at a distance; each the median over the rounds.

    Attributes:
        near: without a distance.
        predicted: from ``near``.
        measured: at the distance.
    """

    near: float
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def _medians(column: str) -> Mapping[tuple[str, str, str, str], float]:
    """Return the median over the rounds by configuration, size, pattern and load."""
    found: dict[tuple[str, str, str, str], list[float]] = {}
    with (DATA / "baselines.csv").open() as stream:
        for row in csv.DictReader(stream):
            place = row["configuration"], row["size"], row["pattern"], row["load"]
            found.setdefault(place, []).append(float(row[column]))
    return {place: float(np.median(values)) for place, values in found.items()}


def checks(baselines: Baselines) -> Iterator[tuple[str, LoadedCell, float, Check, Check | None]]:
    """Yield configuration, cell, measured added round trip in ms, and checks of rate and median latency."""
    trips, latencies, default = _medians("rtt_ms"), _medians("median_ms"), baselines.default
    for name, plain in DISTANCES.items():
        for cell in sorted(cell for configuration, cell in baselines.loaded if configuration == name):
            load = f"depth-{cell.iodepth}" if cell.iodepth > 1 else cell.sync
            place = cell.bin_cell.size.name, cell.pattern.value, load
            near, there = latencies[(default, *place)], latencies[(name, *place)]
            asked = replace(plain, acknowledged_seconds=near / 1e3) if cell.pattern.op is Op.WRITE else plain
            far = baselines_at_distance(baselines, asked).baselines
            rates = (baselines.loaded[default, cell], far.loaded[default, cell], baselines.loaded[name, cell])
            on_link = 1e3 * cell.nbytes / asked.link_nbytes_per_s
            latency = Check(near, near + 1e3 * asked.rtt_seconds + on_link, there) if cell.iodepth == 1 else None
            added = trips[(name, *place)] - trips[(default, *place)]
            yield name, cell, added, Check(*(float(np.median(b.iops)) for b in rates)), latency


def _text(check: Check | None) -> str:
    if check is None:
        return " | "
    return f"{check.near:.1f}, {check.predicted:.1f}, {check.measured:.1f} | {100 * check.error:+.1f} %"


def _rates() -> list[str]:
    lines = [
        "| distance | cell | round trip: asked, measured, ms | median latency, ms: near, predicted, measured | "
        "error | with the measured round trip | per second: near, predicted, measured | error |",
        "|---" * 8 + "|",
    ]
    off: dict[str, list[float]] = {"medians": [], "medians with the measured round trip": [], "rates": []}
    for name, cell, added, rate, latency in checks(open_baselines(str(DATA / "baselines.csv"))):
        asked_ms, own = 1e3 * DISTANCES[name].rtt_seconds, ""
        if latency is not None:
            calibrated = (latency.predicted + added - asked_ms) / latency.measured - 1
            own = f"{100 * calibrated:+.1f} %"
            off["medians"].append(latency.error)
            off["medians with the measured round trip"].append(calibrated)
        off["rates"].append(rate.error)
        lines.append(
            f"| {TITLES[name]} | {cell} | {asked_ms:g}, {added:.1f} | {_text(latency)} | {own} | {_text(rate)} |"
        )
    within = [f"of {len(its)} {what} {sum(abs(e) <= _GOAL for e in its)}" for what, its in off.items()]
    return [*lines, "", f"Within {100 * _GOAL:.0f} %: {', '.join(within)}."]


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
            f"| {', '.join(words)} | {2 * asked['delay_ms']:g} ms, {its['rtt_ms']:.2f} ms | "
            f"{its['rtt_sd_ms']:.2f} ms | {its['loss_pct']:.1f} % | {rate} |"
        )
    return lines


TABLES: Mapping[str, Callable[[], list[str]]] = {"rates": _rates, "path": _path}


def main() -> None:
    for name, lines in TABLES.items():
        print(f"{name}\n", *lines(), "", sep="\n")


if __name__ == "__main__":
    main()

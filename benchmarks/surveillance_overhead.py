"""What watching a run costs the run: cells measured in turn with and without the watch.

Everything that a sweep looks at while it measures (health twice a second, counters of hosts and OSDs before and
after, the cluster's map) against nothing at all, on a lab of its own, on the same volumes, alternately, so that a
drift of the machine meets both alike. The figure is the ratio of the rates, watched over unwatched, of the pairs
of neighbours; the goal is that it is above 0.98.
"""

import argparse
import math
import statistics
import tempfile
from pathlib import Path

from scipy import stats

from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.measurement import Measurement
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.measure.engine import CellRun
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.measure.surveillance import Surveillance, telemetry_of
from cephfit.sweep.declaration.sweep_file import parse_sweep

SWEEP = """
schema_version: 1
name: overhead
measurement:
  {{clients: 2, volume_size: 256M, repeats: 1, ramp_seconds: 0.5, run_seconds: {seconds}, iodepth: 4, seed: 1}}
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=20, help="watched and unwatched runs of each cell")
    arguments.add_argument("--seconds", type=float, default=2.0, help="measured time of a run")
    arguments.add_argument("--cells", nargs="+", default=["4K-randread", "4K-randwrite", "1M-read"])
    chosen = arguments.parse_args()
    measurement = parse_sweep(SWEEP.format(seconds=chosen.seconds), file="overhead").measurement
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.up("overhead-benchmark", folder=Path(folder) / "lab")
        try:
            measure(lab, measurement, [Cell.parse(cell) for cell in chosen.cells], chosen.pairs)
        finally:
            lab.down()


def measure(lab: Lab, measurement: Measurement, cells: list[Cell], n_pairs: int) -> None:
    """Print the ratio of each cell with its 95 % interval."""
    target = LabTarget(lab)
    try:
        target.apply(Configuration("A"), n_clients=measurement.n_clients, volume_nbytes=measurement.volume_nbytes)
        telemetry = telemetry_of(target)
        for cell in cells:
            logs = []
            for pair in range(n_pairs):
                rates = {}
                # Which of the two comes first changes from pair to pair.
                for watched in (pair % 2 == 0, pair % 2 == 1):
                    run = CellRun(
                        configuration="A",
                        cell=cell,
                        repeat=pair,
                        attempt=0,
                        measurement=measurement,
                        clients=target.clients(),
                        seeds={client.name: pair + 1 for client in target.clients()},
                    )
                    target.drop_caches()
                    if watched:
                        with Surveillance(target, telemetry):
                            outcome = FioEngine().run(run)
                    else:
                        outcome = FioEngine().run(run)
                    rates[watched] = sum(c.metrics.iops for c in outcome.clients.values() if c.metrics)
                logs.append(math.log(rates[True] / rates[False]))
            half = stats.t.ppf(0.975, n_pairs - 1) * statistics.stdev(logs) / math.sqrt(n_pairs)
            middle = statistics.fmean(logs)
            low, high = math.exp(middle - half), math.exp(middle + half)
            print(f"{cell}: watched / unwatched {math.exp(middle):.3f} ({low:.3f} to {high:.3f}), {n_pairs} pairs")
    finally:
        target.reset()
        target.close()


if __name__ == "__main__":
    main()

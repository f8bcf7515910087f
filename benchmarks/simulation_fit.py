"""How closely the simulated cluster's model agrees with the lab: the tables of docs/simulation.md, as Markdown.

With ``--fit`` the parameters are fitted again: least squares of log rates with a robust loss, the rates of
unaligned writes with double weight. The package's parameters are these, rounded.

Run with: .venv/bin/python benchmarks/simulation_fit.py [--fit]
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from cephfit.core.units import KIB
from cephfit.core.values.cells import Pattern
from cephfit.targets.simulated_storage import LAB, Access, Parameters, iops

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from lab_figures import N_CLIENTS, Figure, alignment_figures, cell_figures, configurations  # noqa: E402
from simulated_evaluation import CONFIGURATIONS  # noqa: E402

FITTED = {
    "hdd": (
        *("read_piece", "read_nbytes_per_s", "write_latency", "write_piece", "write_nbytes_per_s"),
        *("write_object", "deferred_per_nbyte"),
    ),
    "ssd": (
        *("read_latency", "read_piece", "read_nbytes_per_s", "write_latency", "write_piece"),
        "write_nbytes_per_s",
    ),
    "": ("striped_read", "journaling"),
}
"""Names of the fitted parameters, by device class; the last are of no class."""


def parameters_of(logs: Sequence[float]) -> Parameters:
    """Return the package's parameters with the fitted ones replaced by exp(logs), in the order of ``FITTED``."""
    values = iter(math.exp(x) for x in logs)
    parts: dict[str, dict[str, Any]] = {n: {name: next(values) for name in names} for n, names in FITTED.items()}
    hdd = replace(LAB.hdd, read_latency=parts["ssd"]["read_latency"], **parts["hdd"])
    return replace(LAB, hdd=hdd, ssd=replace(LAB.ssd, **parts["ssd"]), **parts[""])


def fit(cells: Sequence[Figure], unaligned: Sequence[Figure]) -> Parameters:
    """Return the parameters with the least error."""
    owners = {"hdd": LAB.hdd, "ssd": LAB.ssd, "": LAB}
    start = np.log([getattr(owners[part], name) for part, names in FITTED.items() for name in names])

    def residuals(logs: Sequence[float]) -> list[float]:
        found = parameters_of(logs)
        errors = [math.log(f.modelled(found) / f.iops) for f in cells]
        errors += [2 * math.log(f.modelled(found) / f.iops) for f in unaligned]
        return [*errors, *(0.02 * (np.asarray(logs) - start))]  # rates hardly depend on some of them

    return parameters_of(least_squares(residuals, start, loss="soft_l1", f_scale=0.1).x)


def print_cells(cells: Sequence[Figure], parameters: Parameters) -> None:
    """Print median, 90th percentile and largest error, per configuration and of all."""
    print("| configuration | median error | 90th percentile | largest |\n|---|---|---|---|")
    for name in (*configurations(), "all"):
        errors = sorted(
            abs(f.modelled(parameters) / f.iops - 1) for f in cells if name in (f.configuration.name, "all")
        )
        if errors:
            at_90 = errors[min(len(errors) - 1, round(0.9 * len(errors)))]
            print(
                f"| {name} | {statistics.median(errors):.1%} | {at_90:.0%} | {errors[-1]:.0%} |".replace("%", " %")
            )


def print_effects(unaligned: Sequence[Figure], parameters: Parameters) -> None:
    """Print single effects: measured and modelled."""
    known = {c.name: c for c in CONFIGURATIONS}

    def ratio(name: str, access: Access, n_clients: int = 1) -> float:
        one, default = (
            iops(known[n], access, n_clients=n_clients, window_seconds=(0.0, 1.5), parameters=parameters)
            for n in (name, "A")
        )
        return one / default

    print("\n| effect | measured | model |\n|---|---|---|")
    for figure in unaligned:
        measured = "21 to 27" if figure.iops == 24.0 else f"{figure.iops:.1f}"
        print(f"| {figure.what} | {measured} IOPS | {figure.modelled(parameters):.1f} IOPS |")
    reads = {depth: ratio("hybrid", Access(4 * KIB, Pattern.RANDREAD, depth)) for depth in (1, 4)}
    print(f"| primary on ssd, random reads at depth 1 | 1.9x | {reads[1]:.1f}x |")
    print(f"| primary on ssd, random reads at depth 4 | 4.1x | {reads[4]:.1f}x |")
    small = Access(4 * KIB, Pattern.RANDWRITE)
    print(f"| client cache, 4K random writes for 1.5 s | up to 70x | {ratio('cached', small, N_CLIENTS):.0f}x |")
    flushed = [ratio("cached", replace(small, sync=sync)) for sync in ("fsync", "every 8")]
    full = N_CLIENTS * iops(
        known["cached"], Access(32 * KIB, Pattern.RANDWRITE), n_clients=N_CLIENTS, parameters=parameters
    )
    print(f"| client cache, 32K random writes, cache full | 53 IOPS | {full:.0f} IOPS |")
    print(f"| client cache, writes with flushes | 0.8x to 1.6x | {flushed[0]:.2f}x to {flushed[1]:.1f}x |")
    steps = Access(40 * KIB, Pattern.RANDWRITE, align_nbytes=8 * KIB)
    for name, what, measured in (
        ("no-deferred", "no deferred writes, pgbench", "2.25x"),
        ("striped-16k", "stripes of 16K, pgbench", "0.70x"),
        ("journaling", "journaling, pgbench", "0.47x"),
        ("ssd", "ssd, pgbench", "5.1x"),
    ):
        print(f"| {what} (model: 40K writes aligned to 8K) | {measured} | {ratio(name, steps):.2f}x |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true", help="fit the parameters again")
    cells, unaligned = cell_figures(), alignment_figures()
    parameters = LAB
    if parser.parse_args().fit:
        parameters = fit(cells, unaligned)
        print(f"{parameters}\n")
    print_cells(cells, parameters)
    print_effects(unaligned, parameters)


if __name__ == "__main__":
    main()

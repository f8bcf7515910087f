"""Variances of a run of many rounds: how long they take, against the plain formulas with matrices of rounds.

    python benchmarks/round_variances.py [ROUNDS ...]

Six configurations in 20 cells, once complete and once with 2 % of the values missing at random. Both ways estimate
the variances of the same figures in the same run; the last column is the largest relative difference of what they
find. Processor time, the better of two, on one thread.
"""

import os

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np

from cephfit.core.statistics.variance import Spread, Table, spread_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from plain_rounds import random_table, with_plain_formulas

ROUNDS = (10, 100, 300, 1000)
N_CELLS = 20


def timed(table: Table) -> tuple[float, Spread]:
    """Return seconds of processor time, and the variances."""
    seconds = []
    for _ in range(2):
        begun = time.process_time()
        spread = spread_of(table)
        seconds.append(time.process_time() - begun)
    assert spread is not None
    return min(seconds), spread


def largest_difference(one: Spread, other: Spread) -> float:
    """Return the largest relative difference of any figure."""
    found = 0.0
    for field in fields(Spread):
        a, b = (getattr(spread, field.name) for spread in (one, other))
        if field.name != "notes" and a is not None:
            a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
            found = max(found, float((np.abs(a - b) / np.maximum(np.abs(b), 1e-300)).max()))
    return found


def main() -> None:
    print(
        "| rounds | missing | plain formulas | cephfit | ratio | largest difference |\n|---|---|---|---|---|---|"
    )
    for n_rounds in map(int, sys.argv[1:] or ROUNDS):
        for missing in (0.0, 0.02):
            table = random_table(1, missing, n_rounds, n_cells=N_CELLS)
            seconds, spread = timed(table)
            with with_plain_formulas():
                plain_seconds, plain = timed(table)
            print(
                f"| {n_rounds} | {100 * missing:.0f} % | {plain_seconds:.3f} s | {seconds:.3f} s "
                f"| {plain_seconds / seconds:.1f} | {largest_difference(spread, plain):.0e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""The distance model against the tables of Ng et al. (FAST 2002): prints the tables of docs/distance.md.

Table 1 (8 KB accesses, one outstanding): the figures at 1, 2, 4 and 8 ms are predicted from those at 0 ms alone.
T_protocol is the time that the null device takes more at 0 ms than locally; sequential writes give the time after
which a cache acknowledges. Table 3 (a congested link): the time of a transaction is fitted to RTT and loss.

    .venv/bin/python benchmarks/ng_distance.py
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

DATA = Path(__file__).resolve().parent / "data" / "ng2002"
DEVICES = {"DNES": "disk DNES", "DDYS": "disk DDYS", "ARR": "RAID-5 array", "NUL": "null device"}
PATTERNS = {
    "rr": "random read",
    "rw": "random write",
    "sr": "sequential read",
    "sw": "sequential write",
}
DISTANCES = (1, 2, 4, 8)
APPLICATIONS = {
    "PM_ffs": "PostMark, FFS",
    "PM_soft": "PostMark, FFS with soft updates",
    "PM_nt_ntfs": "PostMark, NTFS",
    "TPCC_nt_ntfs": "TPC-C, NTFS",
}
Table = Mapping[str, Mapping[str, float]]


def table(name: str) -> Table:
    """Read a table: its first column to the column's name to the value; empty fields are omitted."""
    lines = [line for line in (DATA / name).read_text().splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines)
    key = str((rows.fieldnames or [""])[0])
    return {row[key]: {k: float(v) for k, v in row.items() if k != key and v} for row in rows}


def access_seconds(
    disk: float, one_way: float, protocol: float, *, masked: bool = False, acknowledged: float = 0.0
) -> float:
    """Return the time of one access by equation 1 of the paper; all times in seconds (or all in ms).

    Args:
        disk: T_disk.
        one_way: T_net.
        protocol: T_protocol.
        masked: the storage acknowledges the write before it is on the disk.
        acknowledged: time after which it does; the paper's equation has 0.
    """
    away = 2 * one_way
    return (max(disk, acknowledged + away) if masked else disk + away) + protocol


def predicted_ms(response: Table, column: str, one_way_ms: float, *, with_cache: bool) -> float:
    """Return the response time that the model predicts from the row of 0 ms.

    Args:
        response: the table of response times in ms.
        column: device and pattern.
        one_way_ms: T_net.
        with_cache: use the time after which a cache acknowledges, which the paper's equation lacks.
    """
    device, pattern = column.split("_")
    near = response["0"]
    protocol = near[f"NUL_{pattern}"] - response["local"][f"NUL_{pattern}"]
    acknowledged = near[f"{device}_sw"] - protocol if with_cache else 0.0
    is_masked = pattern == "rw"
    return access_seconds(
        near[column] - protocol, one_way_ms, protocol, masked=is_masked, acknowledged=acknowledged
    )


def errors(*, with_cache: bool, throughput: bool = False) -> dict[tuple[str, int], tuple[float, float]]:
    """Return (column, one-way ms) to the measured and the predicted value, in ms or MB/s."""
    response = table("ng_table1_response_ms.csv")
    measured = table("ng_table1_throughput_MBps.csv") if throughput else response
    found = {}
    for column in response["0"]:
        for ms in DISTANCES:
            value = predicted_ms(response, column, ms, with_cache=with_cache)
            if throughput:
                value = measured["0"][column] * response["0"][column] / value
            found[column, ms] = (measured[str(ms)][column], value)
    return found


def _table_1(unit: str, *, throughput: bool) -> list[str]:
    found = errors(with_cache=True, throughput=throughput)
    plain = errors(with_cache=False, throughput=throughput)
    heads = " | ".join(f"{ms} ms: measured, predicted" for ms in DISTANCES)
    lines = [
        f"| {unit} | {heads} | largest error | by the paper's equation |",
        "|---" * (len(DISTANCES) + 3) + "|",
    ]
    for column in dict.fromkeys(column for column, _ in found):
        device, pattern = column.split("_")
        cells = " | ".join("{:.2f}, {:.2f}".format(*found[column, ms]) for ms in DISTANCES)
        worst, of_paper = (
            max((its[column, ms][1] / its[column, ms][0] - 1 for ms in DISTANCES), key=abs)
            for its in (found, plain)
        )
        lines.append(
            f"| {DEVICES[device]}, {PATTERNS[pattern]} | {cells} | {100 * worst:+.1f} % | "
            f"{100 * of_paper:+.1f} % |"
        )
    absolute = [abs(predicted / measured - 1) for measured, predicted in found.values()]
    lines += [
        "",
        f"Of {len(absolute)} cells the median error is {100 * np.median(absolute):.1f} %, the largest "
        f"{100 * max(absolute):.1f} %; {sum(e <= 0.05 for e in absolute)} are within 5 %, and "
        f"{sum(e <= 0.10 for e in absolute)} within 10 %.",
    ]
    return lines


def congested_delays(figures: Mapping[str, Sequence[float]]) -> Mapping[str, Any]:
    """Fit the time of a transaction over a congested link: time = constant + round trips x RTT + k x loss.

    Args:
        figures: ``seconds`` of a transaction, ``rtt`` in seconds and ``loss`` as a share; R rows.

    Returns:
        ``constant`` (s), ``round_trips``, ``seconds_per_loss`` (s), each at least 0, and ``fitted``, shape (R,).
        Relative errors are minimised, so that slow and fast rows count alike.
    """
    seconds = np.asarray(figures["seconds"], dtype=np.float64)
    terms = np.column_stack([np.ones_like(seconds), figures["rtt"], figures["loss"]])
    found, _ = nnls(terms / seconds[:, None], np.ones_like(seconds))
    return {
        "constant": float(found[0]),
        "round_trips": float(found[1]),
        "seconds_per_loss": float(found[2]),
        "fitted": terms @ found,
    }


def congestion(application: str) -> tuple[Sequence[Mapping[str, float]], Mapping[str, float | np.ndarray]]:
    """Return the rows of Table 3 with a rate of an application, and the fit of the time of its transactions."""
    rows = [{"load": float(load), **row} for load, row in table("ng_table3_congestion.csv").items()]
    rows = [row for row in rows if application in row]
    return rows, congested_delays(
        {
            "seconds": [1 / row[application] for row in rows],
            "rtt": [row["rtt_ms"] / 1e3 for row in rows],
            "loss": [row["loss"] for row in rows],
        }
    )


def _table_3() -> list[str]:
    loads = [row["load"] for row in congestion("TPCC_nt_ntfs")[0]]
    lines = [
        "| background load | " + " | ".join(f"{load:g} %" for load in loads) + " | largest error |",
        "|---" * (len(loads) + 2) + "|",
    ]
    for application, title in APPLICATIONS.items():
        rows, fit = congestion(application)
        fitted = 1 / np.asarray(fit["fitted"])
        cells = [f"{row[application]:.0f}, {value:.0f}" for row, value in zip(rows, fitted, strict=True)]
        cells += [""] * (len(loads) - len(rows))
        worst = max((v / row[application] - 1 for row, v in zip(rows, fitted, strict=True)), key=abs)
        lines.append(f"| {title} | {' | '.join(cells)} | {100 * worst:+.0f} % |")
    return lines


TABLES: Mapping[str, Callable[[], list[str]]] = {
    "response": lambda: _table_1("response time, ms", throughput=False),
    "throughput": lambda: _table_1("throughput, MB/s", throughput=True),
    "congestion": _table_3,
}


def main() -> None:
    for name, lines in TABLES.items():
        print(f"{name}\n", *lines(), "", sep="\n")


if __name__ == "__main__":
    main()

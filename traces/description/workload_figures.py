"""Plot a workload: the figures of Meyer (2017, Figures 4.8 to 4.58), and behaviour over time and address.

Needs matplotlib (the extra ``plot``). The colours are those of Okabe and Ito, which colour-blind people can
distinguish; reads and writes also differ in their markers and hatches.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import MIB
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BINS, Op, Pattern
from cephfit.core.values.profile import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

READ_COLOUR, WRITE_COLOUR, ALL_COLOUR = "#0072B2", "#D55E00", "#6b6b6b"
_KINDS = {"read": (READ_COLOUR, ""), "write": (WRITE_COLOUR, "///")}
_GIB_LBN = 1 << 21

_BURSTY = 30
"""A rate is drawn on a logarithmic axis (linear below 1) if its peak is this many times its median."""

NAMES = (
    *("cells", "size", "distance", "distance_windowed", "outstanding", "latency_us", "interarrival_us"),
    *("iops", "bytes", "latency_over_time", "sensitivity", "lbn", "heat_map"),
)
"""All plots; the last two also with ``:DISK`` for a disk other than the busiest one."""

Drawing = Callable[["Axes"], None]


def drawings(profile: Profile) -> dict[str, Drawing]:
    """Return name to drawing function for every plot that the profile has data for."""
    histograms = profile.description.get("histograms", {})
    named: dict[str, Drawing] = {"cells": lambda axes: _cells(axes, profile)}
    for name, title, label in (
        ("size", "Sizes", "size [bytes], at most"),
        ("distance", "Distance to the previous access of its kind", "distance [LBN], at most"),
        ("distance_windowed", "Distance to the closest of the previous 16", "distance [LBN], at most"),
        ("outstanding", "Outstanding when one is issued", "outstanding accesses, at most"),
        ("latency_us", "Latency", "latency [µs], at most"),
        ("interarrival_us", "Inter-arrival", "time since the previous access [µs], at most"),
    ):
        if "all" in histograms.get(name, {}):
            named[name] = _histogram_drawing(histograms[name], title, label)
    behaviour = profile.description.get("behaviour")
    if behaviour and behaviour.get("over_time"):
        named["iops"] = lambda axes: _rates(axes, behaviour, "s", 1.0, "IOPS over time", "accesses per second")
        named["bytes"] = lambda axes: _rates(
            axes, behaviour, "_nbytes", 1 / MIB, "Bytes over time", "MiB per second"
        )
        if any(f"{op}_latency_us" in behaviour["over_time"] for op in Op):
            named["latency_over_time"] = lambda axes: _latency_over_time(axes, behaviour)
    if behaviour:
        named["sensitivity"] = lambda axes: _sensitivity(
            axes, behaviour["sensitivity"], behaviour.get("random_threshold_lbn", RANDOM_THRESHOLD_LBN)
        )
        for number, (name, disk) in enumerate(behaviour["disks"].items()):
            of_disk = f":{name}" if number else ""
            named[f"lbn{of_disk}"] = _place_drawing(_scatter, disk["sample"], name)
            named[f"heat_map{of_disk}"] = _place_drawing(_heat_map, disk["heat_map"], name)
    return named


def usually_drawn(profile: Profile) -> list[str]:
    """Return the default plots; those over addresses show the busiest disk."""
    return [name for name in drawings(profile) if name in NAMES]


def figure_of(profile: Profile, names: Sequence[str]) -> "Figure":
    """Return a figure with the plots ``names``."""
    from matplotlib.figure import Figure

    drawn = drawings(profile)
    n_columns = min(len(names), 2)
    n_rows = -(-len(names) // n_columns)
    figure = Figure(figsize=(7.0 * n_columns, 3.9 * n_rows + (0.5 if n_columns > 1 else 0)), layout="constrained")
    grid = np.atleast_1d(figure.subplots(n_rows, n_columns, squeeze=False)).ravel()
    for axes, name in zip(grid, names, strict=False):
        _style(axes)
        drawn[name](axes)
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    if n_columns > 1:
        figure.suptitle(f"{profile.name}: {profile.n_accesses:,} accesses", fontsize=13, weight="bold")
    return figure


def _style(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.set_axisbelow(True)


def _titled(axes: "Axes", title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10, loc="left", weight="bold")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)


def _legend(axes: "Axes", **where: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False, **where)


def _bars(axes: "Axes", labels: Sequence[str], series: Mapping[str, NDArray[np.float64]]) -> None:
    width = 0.8 / max(len(series), 1)
    for i, (kind, values) in enumerate(series.items()):
        colour, hatch = _KINDS.get(kind, (ALL_COLOUR, ""))
        place = np.arange(len(labels)) + (i - (len(series) - 1) / 2) * width
        axes.bar(
            place, values, width, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3, label=f"{kind}s"
        )
    axes.set_xticks(np.arange(len(labels)), labels)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    _legend(axes)


def _cells(axes: "Axes", profile: Profile) -> None:
    counts = profile.cell_counts()
    total = max(profile.n_accesses, 1)
    bottom = np.zeros(len(SIZE_BINS))
    for pattern, colour, hatch in (
        (Pattern.READ, "#56B4E9", ""),
        (Pattern.RANDREAD, READ_COLOUR, "..."),
        (Pattern.WRITE, "#E69F00", "///"),
        (Pattern.RANDWRITE, WRITE_COLOUR, "xxx"),
    ):
        values = [
            100 * sum(n for c, n in counts.items() if c.size == b and c.pattern == pattern) / total
            for b in SIZE_BINS
        ]
        axes.bar(
            range(len(SIZE_BINS)),
            values,
            bottom=bottom,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=pattern.value,
        )
        bottom += np.array(values)
    axes.set_xticks(range(len(SIZE_BINS)), [b.name for b in SIZE_BINS])
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    _titled(axes, "Size bins and patterns", "size bin", "% of all accesses")
    _legend(axes)


def _histogram_drawing(histogram: Mapping[str, Any], title: str, label: str) -> Drawing:
    def draw(axes: "Axes") -> None:
        limits = histogram["all"]["limits"]
        kinds = [k for k in ("read", "write") if k in histogram and any(histogram[k]["counts"])] or ["all"]
        counts = {k: np.array(histogram[k]["counts"], float) for k in kinds}
        labels = [_short(v) for v in limits] + [f">{_short(limits[-1])}"]
        _bars(axes, labels, {k: 100 * v / max(v.sum(), 1) for k, v in counts.items()})
        axes.tick_params(axis="x", rotation=60 if len(labels) > 14 else 0, labelsize=7)
        _titled(axes, title, label, "% of the reads, of the writes" if len(kinds) > 1 else f"% of the {kinds[0]}s")

    return draw


def _short(value: int) -> str:
    """Return the full value below 10,000, so that 4095 and 4096 differ; above, thousands if exact."""
    return f"{value // 1000}k" if abs(value) >= 10_000 and value % 1000 == 0 else str(value)


def _rates(axes: "Axes", behaviour: Mapping[str, Any], suffix: str, scale: float, title: str, unit: str) -> None:
    over = behaviour["over_time"]
    width = over["bin_seconds"]
    edges = over["start_seconds"] + width * np.arange(len(over["reads"]) + 1)
    bursty = False
    for op in Op:
        values = np.array(over[f"{op.value}{suffix}"], float) * scale / width
        if values.any():
            colour = _KINDS[op.value][0]
            axes.stairs(
                values, edges, color=colour, label=f"{op.value}s", linewidth=1.2, ls="-" if op is Op.READ else "--"
            )
        typical, largest = (float(np.median(values[values > 0])) if values.any() else 0.0), float(values.max())
        bursty = bursty or (0 < typical < largest / _BURSTY)
    _phase_lines(axes, behaviour)
    if bursty:
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(bottom=0)
    axes.set_xlim(edges[0], edges[-1])
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    _titled(axes, title, "time [s]", f"{unit} (in {width:g} s)")
    _legend(axes)


def _phase_lines(axes: "Axes", behaviour: Mapping[str, Any]) -> None:
    for i, phase in enumerate(behaviour["phases"][1:]):
        axes.axvline(
            phase["start_seconds"], color="#999999", ls=":", linewidth=1, label="a phase begins" if not i else None
        )


def _latency_over_time(axes: "Axes", behaviour: Mapping[str, Any]) -> None:
    over = behaviour["over_time"]
    for op, mark in ((Op.READ, "o"), (Op.WRITE, "x")):
        values = over.get(f"{op.value}_latency_us")
        if values:
            points = [(i, v) for i, v in enumerate(values) if v is not None]
            times = over["start_seconds"] + over["bin_seconds"] * (np.array([i for i, _ in points]) + 0.5)
            axes.plot(
                times,
                [v for _, v in points],
                mark,
                color=_KINDS[op.value][0],
                ms=2.5,
                label=f"{op.value}s",
                alpha=0.7,
            )
    axes.set_yscale("log")
    for formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(which="minor", labelsize=7)
    _phase_lines(axes, behaviour)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    _titled(axes, "Mean latency over time", "time [s]", f"latency [µs] (mean in {over['bin_seconds']:g} s)")
    _legend(axes)


def _sensitivity(axes: "Axes", table: Mapping[str, Any], threshold: int) -> None:
    for op, mark in ((Op.READ, "o"), (Op.WRITE, "s")):
        for measure, line, label in (
            ("previous", "-", "from the previous"),
            ("closest_of_16", ":", "from the closest of 16"),
        ):
            shares = table[op.value][measure]
            if shares is not None:
                axes.plot(
                    table["thresholds_lbn"],
                    [100 * s for s in shares],
                    line,
                    marker=mark,
                    ms=4,
                    color=_KINDS[op.value][0],
                    label=f"{op.value}s {label}",
                )
    axes.axvline(threshold, color="#999999", ls="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(table["thresholds_lbn"], [str(t) for t in table["thresholds_lbn"]])
    axes.set_ylim(0, 101)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    _titled(axes, "Random share by threshold", "an access is random beyond [LBN]", "% random")
    _legend(axes)


def _place_drawing(
    draw: Callable[["Axes", Mapping[str, Any], str], None], facts: Mapping[str, Any], disk: str
) -> Drawing:
    return lambda axes: draw(axes, facts, disk)


def _scatter(axes: "Axes", sample: Mapping[str, Any], disk: str) -> None:
    seconds = np.array(sample["time_us"].split(), float) / 1e6
    gib = np.array(sample["lbn"].split(), float) / _GIB_LBN
    ops = np.array(list(sample["op"]))
    for op, mark in (("read", "o"), ("write", "x")):
        mine = ops == op[0]
        if mine.any():
            axes.plot(seconds[mine], gib[mine], mark, color=_KINDS[op][0], ms=2.2, alpha=0.6, label=f"{op}s")
    axes.set_ylim(bottom=0)
    _titled(
        axes,
        f"LBN over time, disk {disk}: {len(ops):,} accesses drawn by chance",
        "time [s]",
        "place on the disk [GiB]",
    )
    _legend(axes, loc="upper right")


def _heat_map(axes: "Axes", heat_map: Mapping[str, Any], disk: str) -> None:
    from matplotlib.colors import LogNorm

    counts = np.array([[int(n) for n in row.split()] for row in heat_map["rows"]], float).T
    n_regions, n_times = counts.shape
    first = heat_map["first_lbn"] / _GIB_LBN
    top = first + n_regions * heat_map["region_nbytes"] / (1 << 30)
    start = heat_map["start_seconds"]
    image = axes.imshow(
        np.where(counts > 0, counts, np.nan),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="viridis",
        norm=LogNorm(1, max(counts.max(), 2)),
        extent=(start, start + n_times * heat_map["bin_seconds"], first, top),
    )
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02)
    bar.set_label(
        f"accesses in {heat_map['bin_seconds']:g} s and {heat_map['region_nbytes'] / MIB:g} MiB", fontsize=8
    )
    bar.ax.tick_params(labelsize=7)
    _titled(axes, f"Heat map, disk {disk}", "time [s]", "place on the disk [GiB]")

"""Options on the network between clients and storage, in addition to what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import Finite

if TYPE_CHECKING:
    from cephfit.mapper.distance import Distance

_OPTIONS = (
    click.option(
        "--one-way-ms",
        type=Finite(min=0),
        metavar="MS",
        help="Predict for storage that is MS milliseconds farther away, each way, than where it was measured.",
    ),
    click.option(
        "--rtt-per-access",
        type=Finite(min=0),
        metavar="N",
        help="With a distance: round trips of each access, one after the other.  [default: 1, that of librbd]",
    ),
    click.option(
        "--rtt-per-flush",
        type=Finite(min=0),
        metavar="N",
        help="With a distance: round trips of each flush; 0 for librbd without a cache.  [default: 1]",
    ),
    click.option(
        "--bandwidth-mbit",
        type=Finite(min=0, min_open=True),
        metavar="MBIT",
        help="With a distance: the narrowest link, in 10**6 bits per second.  [default: no limit]",
    ),
    click.option(
        "--loss-pct",
        type=Finite(min=0, max=20),
        metavar="PCT",
        help="With a distance: lost packets in percent, at most 20.  [default: 0]",
    ),
    click.option(
        "--tcp",
        type=click.Choice(("cubic", "reno", "bbr")),
        help="With a loss: the congestion control of the hosts; bbr is not slower after a loss.  [default: cubic]",
    ),
    click.option(
        "--tcp-window",
        metavar="SIZE",
        help="With a distance: bytes that a TCP connection sends before it waits, as 4M.  [default: no limit]",
    ),
    click.option(
        "--connections",
        type=click.IntRange(min=1),
        metavar="N",
        help="With a distance: TCP connections that share the traffic, such as one to each OSD.  [default: 1]",
    ),
    click.option(
        "--write-ack-ms",
        type=Finite(min=0),
        metavar="MS",
        help="With a distance: the storage acknowledges writes from a cache after MS; its disks limit their rate.",
    ),
)


def distance_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command takes them as further keywords, see ``distance_of``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def distance_of(network: Mapping[str, Any]) -> Distance | None:
    """Return the distance that options ask for; None without one.

    Raises:
        UsageError: an option of a distance is given without a distance, a bandwidth or a loss.
    """
    from cephfit.core.units import parse_nbytes
    from cephfit.mapper.distance import Distance

    given = {name: value for name, value in network.items() if value is not None}
    if not given:
        return None
    if not given.keys() & {"one_way_ms", "bandwidth_mbit", "loss_pct"}:
        option = f"--{next(iter(given)).replace('_', '-')}"
        raise click.UsageError(f"{option} needs a distance: add --one-way-ms")
    as_fields: dict[str, Any] = {
        "one_way_seconds": given.get("one_way_ms", 0.0) / 1e3,
        "loss": given.get("loss_pct", 0.0) / 100,
        "loss_is_congestion": given.get("tcp") != "bbr",
        "acknowledged_seconds": given["write_ack_ms"] / 1e3 if "write_ack_ms" in given else None,
    }
    as_fields |= {name: given[name] for name in ("rtt_per_access", "rtt_per_flush") if name in given}
    if "bandwidth_mbit" in given:
        as_fields["nbytes_per_s"] = given["bandwidth_mbit"] * 1e6 / 8
    if "tcp_window" in given:
        as_fields["window_nbytes"] = parse_nbytes(given["tcp_window"], where="--tcp-window")
    if "connections" in given:
        as_fields["connections"] = given["connections"]
    return Distance(**as_fields)

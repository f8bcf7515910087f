"""What `cephfit sweep` prints of a target before anything is changed there."""

from collections.abc import Mapping
from typing import Any

import click

from cephfit.cli.output import print_table
from cephfit.protocols import Target
from cephfit.sweep.model import Sweep
from cephfit.units import format_nbytes, format_seconds


def preview_document(target: Target, sweep: Sweep) -> dict[str, Any] | None:
    """What a sweep would do to a target; None where the target cannot say."""
    from cephfit.sweep.abilities import Previews

    return target.preview(sweep).to_json() if isinstance(target, Previews) else None


def print_preview(document: Mapping[str, Any]) -> None:
    """The same for people."""
    from cephfit.sweep.targets.cluster_preview import RESTART_SECONDS

    click.echo()
    if document["differences"]:
        click.echo("Settings that would change:")
        words = ("configuration", "place", "key", "now", "then")
        print_table(words, [tuple(d[w] or "-" for w in words) for d in document["differences"]])
    else:
        click.echo("No setting would change.")
    click.echo()
    for name, osds in document["restarts"].items():
        click.echo(f"{name} needs a restart of {_osds(osds)}")
    if document["osd_restarts"]:
        click.echo(
            f"{document['osd_restarts']} OSD restarts in all, one after the other, about "
            f"{format_seconds(document['osd_restart_seconds'])} (assumed: {RESTART_SECONDS:g} s each)"
        )
    else:
        click.echo("No daemon is restarted.")
    if document["pools"]:
        click.echo("Pools that would be created, and deleted at the end:")
        rows = [
            (
                pool["name"],
                ", ".join(f"{k} = {v}" for k, v in pool["values"].items()) or "Ceph's defaults",
                ", ".join(pool["configurations"]),
                str(pool["n_pgs"]),
                f"{pool['pgs_per_osd']:g}" if pool["pgs_per_osd"] else "-",
                format_nbytes(pool["nbytes"]),
                format_nbytes(pool["raw_nbytes"]),
            )
            for pool in document["pools"]
        ]
        print_table(("pool", "values", "configurations", "PGs", "per OSD", "written", "in all copies"), rows)
    moved = document["moved_nbytes"]
    click.echo(f"Data of other pools that would move: {format_nbytes(moved) if moved else 'none'}")
    for note in document["notes"]:
        click.echo(note)
    for reason in document["unhealthy_because"]:
        click.echo(f"The cluster is not healthy, so nothing would be done: {reason}")


def _osds(osds: list[int]) -> str:
    return ", ".join(f"osd.{osd}" for osd in osds)

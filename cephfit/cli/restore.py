"""`cephfit restore`: put a target back as it was before cephfit changed it."""

import time

import click

from cephfit.cli.output import json_option, print_json, progress_display
from cephfit.units import format_seconds


@click.command()
@click.option(
    "--target", "target_text", required=True, metavar="TARGET", help="Which: `lab`, `lab:NAME`, `local:/PATH`."
)
@json_option
def command(target_text: str, as_json: bool) -> None:
    """Put a target back as it was before cephfit changed it, also after a crash.

    Gives every changed option and kernel value its original, restarts the OSDs that need it, detaches the
    clients' disks and deletes the volumes and pools that cephfit made. Measured samples are in the store and
    stay there. Safe to run at any time, and again.
    """
    from cephfit.cli.target_choice import open_target

    started = time.monotonic()
    with progress_display() as progress:
        target = open_target(target_text, for_change=True, progress=progress)
        try:
            target.reset()
            name, health = target.name, target.health()
        finally:
            target.close()
    seconds = time.monotonic() - started
    if as_json:
        print_json(
            {"target": name, "restored": True, "healthy": health.ok, "reasons": health.reasons, "seconds": seconds}
        )
        return
    click.echo(f"{name} is as it was before cephfit changed it ({format_seconds(seconds)})")
    for reason in health.reasons:
        click.echo(f"It is not healthy: {reason}")

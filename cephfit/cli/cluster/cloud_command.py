"""`cephfit cloud`: check an OpenStack cloud, list and delete the resources of runs, set volume types of images."""

from __future__ import annotations

import json
import shlex
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import apply_option, connected
from cephfit.cli.output import SentenceGroup, json_option, print_json, print_table
from cephfit.core.errors import ClusterError, InputError
from cephfit.operations.measuring.progress_display import progress_display
from cephfit.operations.measuring.target_choice import require_openstack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openstack.connection import Connection

    from cephfit.cloud.volumes.placed_images import ImageStep
    from cephfit.core.journal import Journal
    from cephfit.core.values.configuration import ImageChange


cloud_option = click.option(
    "--cloud",
    default="",
    metavar="NAME",
    help="Name of the cloud in clouds.yaml.  [default: $OS_CLOUD, or the OS_* variables]",
)


@click.command()
@click.argument("layout", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@cloud_option
@apply_option("to the images")
@json_option
def place(layout: Path, cloud: str, apply: bool, as_json: bool) -> None:
    """Give images the volume types that `cephfit place` recommends.

    LAYOUT is the output of `cephfit place ... --properties FILE --json`. Cinder gives a new volume from an image
    this type, unless the user names another one. Only images of this project are changed. Every original value is
    in a journal on disk before it is changed, and every new value is read back. `cephfit cloud unplace` undoes it.
    """
    changes = _read_layout(layout)
    with _journal_of(cloud, for_change=apply) as (connection, journal):
        from cephfit.cloud.volumes import placed_images

        steps = placed_images.plan(connection, changes)
        if apply:
            placed_images.apply(connection, steps, journal)
    undo = shlex.join(["cephfit", "cloud", "unplace", *(["--cloud", cloud] if cloud else []), "--apply"])
    if as_json:
        print_json({"applied": apply, "images": [step.to_json() for step in steps], "undo": undo})
        return
    _print_steps(steps, "get another volume type", applied=apply)
    if apply and any(step.is_change for step in steps):
        click.echo(f"To undo it: {undo}")


@click.command()
@cloud_option
@apply_option("to the images")
@json_option
def unplace(cloud: str, apply: bool, as_json: bool) -> None:
    """Restore the volume types that images had before `cephfit cloud place`.

    Images whose type was changed since are left as they are; they are listed, and the exit code is 2.
    """
    with _journal_of(cloud, for_change=apply) as (connection, journal):
        from cephfit.cloud.volumes import placed_images

        steps = placed_images.undo_plan(connection, journal)
        if apply:
            placed_images.undo(connection, steps, journal)
    if as_json:
        print_json({"applied": apply, "images": [step.to_json() for step in steps]})
    else:
        _print_steps(steps, "get their original volume type back", applied=apply)
    if apply and (left := [step for step in steps if step.reason and step.now is not None]):
        raise ClusterError(
            f"left as they are: {'; '.join(f'{s.name} ({s.id}): {s.reason}' for s in left)}",
            where="images",
            remedy="set the property cinder_img_volume_type by hand: "
            + ", ".join(f"{s.name} had {s.then or 'none'}" for s in left),
        )


@contextmanager
def _journal_of(cloud: str, *, for_change: bool) -> Iterator[tuple[Connection, Journal]]:
    """Connect to a cloud and open the journal of its images; both are closed at the end."""
    with closing(connected(cloud)) as connection:
        from cephfit.cloud.volumes.placed_images import open_journal

        with open_journal(connection, for_change=for_change) as journal:
            yield connection, journal


def _read_layout(path: Path) -> tuple[ImageChange, ...]:
    """Read the images of a document of `place`.

    Raises:
        InputError: it is no such document, or it has no images.
    """
    from cephfit.core.values.configuration import ImageChange

    remedy = "write it with `cephfit place ... --properties FILE --json > LAYOUT`"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        images = document.get("images", [])
        changes = tuple(ImageChange.from_json(image) for image in images)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"this is not the output of `place`: {type(error).__name__}: {error}", where=str(path), remedy=remedy
        ) from None
    if not changes:
        raise InputError("it names no images", where=str(path), remedy=remedy)
    return changes


def _print_steps(steps: Sequence[ImageStep], what: str, *, applied: bool) -> None:
    n = sum(step.is_change for step in steps)
    click.echo(f"{n} of {len(steps)} images {what}")
    if steps:
        rows = [(s.name, s.id, s.now or "-", s.reason or s.then or "-") for s in steps]
        print_table(("image", "id", "before" if applied else "now", "now" if applied else "then"), rows)
    if n and not applied:
        click.echo("Nothing was changed. Run the same command with --apply to do it.")


@click.group(cls=SentenceGroup)
def command() -> None:
    """OpenStack: check the needs of a sweep, list the resources of runs, delete those of one run.

    Every resource that cephfit creates in a cloud carries the id of its run. Other resources are never changed,
    except by `cephfit cloud place`, which sets a property of images.
    """


command.add_command(place)
command.add_command(unplace)


@command.command()
@click.argument("target")
@click.option("--clients", default=1, show_default=True, type=click.IntRange(1), help="Number of guests.")
@click.option("--volume-size", default="1G", show_default=True, help="Size of each guest's volume.")
@json_option
def check(target: str, clients: int, volume_size: str, as_json: bool) -> None:
    """Check whether a cloud meets the needs of a sweep; creates nothing.

    TARGET has the form of `sweep run --target`: `openstack:CLOUD,flavor=NAME,volume_type=NAME,network=NAME`.
    """
    if target.partition(":")[0] != "openstack":
        raise InputError(
            f"{target} is not a cloud", remedy="write openstack:CLOUD,flavor=NAME,volume_type=NAME,..."
        )
    require_openstack(target)
    from cephfit.cloud.cloud_choice import parse_choice, require_whole
    from cephfit.cloud.cloud_preflight import require
    from cephfit.cloud.free_capacity import Wanted, cinder_pools
    from cephfit.cloud.volumes.cinder_volumes import size_gib
    from cephfit.cloud.volumes.volume_types import qos_of_types
    from cephfit.core.units import parse_nbytes

    choice = parse_choice(target)
    require_whole(choice)
    nbytes = parse_nbytes(volume_size)
    cloud = connected(choice.cloud)
    try:
        pools = cinder_pools(cloud)
        wanted = [Wanted(choice.volume_type, clients)]
        found = require(cloud, choice, wanted, nbytes=nbytes, pools=pools, checks_all=True)
        qos = qos_of_types(cloud)[choice.volume_type]
    finally:
        cloud.close()
    if as_json:
        document = {
            "cloud": cloud.name,
            "needs": [asdict(need) for need in found.needs],
            "guests_that_fit": found.n_fitting,
            "qos": qos.to_json(),
            "capacity": [asdict(fit) for fit in found.capacity],
            "scarce": list(found.scarce),
            "unseen": list(found.unseen),
        }
        print_json(document)
        return
    rows = [(n.what, str(n.more), str(n.used), "none" if n.limit < 0 else str(n.limit)) for n in found.needs]
    print_table(("quota", "needed", "used", "limit"), rows, right=(1, 2, 3))
    if found.n_fitting is not None:
        click.echo(f"guests for which the compute hosts have unallocated vCPUs: {found.n_fitting}")
    for fit in found.capacity:
        click.echo(fit.sentence)
    if qos.unseen:
        click.echo(f"QoS of volume type {choice.volume_type}: this user is not allowed to see it")
    elif qos.qos is not None and (sentence := qos.qos.sentence(choice.volume_type)):
        click.echo(sentence)
    gib = size_gib(nbytes)
    guests = f"{clients} clients with volumes of {gib} GiB need"
    click.echo(found.verdict(cloud.name, f"what {guests if clients > 1 else f'1 client with {gib} GiB needs'}"))


@command.command(name="list")
@cloud_option
@json_option
def list_runs(cloud: str, as_json: bool) -> None:
    """List the resources of cephfit's runs in this project, and all their volume types and QoS specs."""
    connection = connected(cloud)
    from cephfit.cloud.owned_resources import runs

    try:
        found = runs(connection)
    finally:
        connection.close()
    if as_json:
        print_json({run_id: [asdict(thing) for thing in things] for run_id, things in found.items()})
        return
    rows = [(run_id, t.kind, t.name, t.status or "-", t.id) for run_id, things in found.items() for t in things]
    if not rows:
        click.echo("no run of cephfit owns anything in this project")
        return
    print_table(("run", "kind", "name", "status", "id"), rows)


@command.command()
@click.argument("run_id", metavar="RUN")
@cloud_option
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@json_option
def clean(run_id: str, cloud: str, dry_run: bool, as_json: bool) -> None:
    """Delete all resources of a run in this project: stacks, servers, ports, groups, volumes, types with QoS.

    It deletes at once; --dry-run only shows what would be deleted. Resources are found by the run's id, even if
    this machine no longer knows the run. Those that cannot be deleted are listed with the reason, and the exit
    code is 2.
    """
    from cephfit.cloud.ownership import is_run_id

    if not is_run_id(run_id):
        raise InputError(f"{run_id!r} is not the id of a run", remedy="`cephfit cloud list` shows the ids")
    connection = connected(cloud)
    from cephfit.cloud.cloud_cleanup import clean as clean_up
    from cephfit.cloud.owned_resources import owned

    try:
        if dry_run:
            things = owned(connection, run_id)
            if as_json:
                print_json({"run": run_id, "would_delete": [asdict(thing) for thing in things]})
            elif things:
                print_table(
                    ("kind", "name", "status", "id"), [(t.kind, t.name, t.status or "-", t.id) for t in things]
                )
            else:
                click.echo(f"run {run_id} owns nothing in this project")
            return
        with progress_display() as progress:
            gone, left = clean_up(connection, run_id, progress)
    finally:
        connection.close()
    if as_json:
        print_json({"run": run_id, "deleted": [asdict(t) for t in gone], "left": [asdict(one) for one in left]})
    elif not gone and not left:
        click.echo(f"run {run_id} owns nothing in this project")
    else:
        click.echo(f"{len(gone)} resources of run {run_id} deleted")
    if left:
        reasons = "; ".join(
            f"{one.resource.kind} {one.resource.name} ({one.resource.id}): {one.why}" for one in left
        )
        raise ClusterError(
            f"not deleted: {reasons}",
            where=f"run {run_id}",
            remedy="remove the cause, then run this command again",
        )

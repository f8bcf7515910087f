"""`cephfit cloud place` and `cephfit cloud unplace`: the volume types of images, and their undo."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import apply_option, connected
from cephfit.cli.terminal.output import json_option, print_json, print_table
from cephfit.core.errors import ClusterError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cephfit.cloud.image.placed_images import ImageStep
    from cephfit.core.values.image_types import ImageChange

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
    connection = connected(cloud)
    from cephfit.cloud.image import placed_images

    try:
        with placed_images.open_journal(connection, for_change=apply) as journal:
            steps = placed_images.plan(connection, changes)
            if apply:
                placed_images.apply(connection, steps, journal)
    finally:
        connection.close()
    undo = shlex.join(["cephfit", "cloud", "unplace", *(["--cloud", cloud] if cloud else []), "--apply"])
    if as_json:
        print_json({"applied": apply, "images": [step.to_json() for step in steps], "undo": undo})
        return
    _print(steps, "get another volume type", applied=apply)
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
    connection = connected(cloud)
    from cephfit.cloud.image import placed_images

    try:
        with placed_images.open_journal(connection, for_change=apply) as journal:
            steps = placed_images.undo_plan(connection, journal)
            if apply:
                placed_images.undo(connection, steps, journal)
    finally:
        connection.close()
    if as_json:
        print_json({"applied": apply, "images": [step.to_json() for step in steps]})
    else:
        _print(steps, "get their original volume type back", applied=apply)
    if apply and (left := [step for step in steps if step.reason and step.now is not None]):
        raise ClusterError(
            f"left as they are: {'; '.join(f'{s.name} ({s.id}): {s.reason}' for s in left)}",
            where="images",
            remedy="set the property cinder_img_volume_type by hand: "
            + ", ".join(f"{s.name} had {s.then or 'none'}" for s in left),
        )


def _read_layout(path: Path) -> tuple[ImageChange, ...]:
    """Read the images of a document of `place`.

    Raises:
        InputError: it is no such document, or it has no images.
    """
    from cephfit.core.values.image_types import ImageChange

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


def _print(steps: Sequence[ImageStep], what: str, *, applied: bool) -> None:
    n = sum(step.is_change for step in steps)
    click.echo(f"{n} of {len(steps)} images {what}")
    if steps:
        rows = [(s.name, s.id, s.now or "-", s.reason or s.then or "-") for s in steps]
        print_table(("image", "id", "before" if applied else "now", "now" if applied else "then"), rows)
    if n and not applied:
        click.echo("Nothing was changed. Run the same command with --apply to do it.")

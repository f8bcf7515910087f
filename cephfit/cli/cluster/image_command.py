"""`cephfit image`: a small image for benchmark guests."""

import time
from pathlib import Path

import click

from cephfit.cli.options.common_options import connected
from cephfit.cli.output import SentenceGroup, json_option, print_json
from cephfit.core.units import MIB, format_seconds
from cephfit.operations.measuring.progress_display import progress_display


@click.group(cls=SentenceGroup)
def command() -> None:
    """A small image for benchmark guests that boots in seconds and works without internet.

    It is built from this Debian machine's packages: the cloud kernel and, in memory, busybox, fio and an SSH
    server. fio's server listens on port 8765. The cloud's key pairs allow a log-in as root. A script in the user
    data is run. The guest does not change its disks.
    """


@command.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--with",
    "extra",
    type=click.Choice(["postgresql"]),
    help="Add a workload's programs: PostgreSQL and pgbench, to run `cephfit verify` inside guests.",
)
@json_option
def build(folder: Path, extra: str | None, as_json: bool) -> None:
    """Build the image into FOLDER: kernel, RAM disk, an empty root disk, and image.json.

    The kernel is fetched from the distribution's mirror; nothing is installed, and root is not needed.
    """
    from cephfit.cloud.guests.guest_image import build

    started = time.monotonic()
    with progress_display() as progress:
        image = build(folder, database=extra is not None, progress=progress)
    seconds = time.monotonic() - started
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "kernel": image.kernel_release,
                "fio": image.fio_version,
                "postgresql": image.postgresql,
                "nbytes": image.nbytes,
                "seconds": seconds,
            }
        )
        return
    click.echo(f"built in {format_seconds(seconds)}: {image.nbytes / MIB:.0f} MiB in {folder}")
    click.echo(f"kernel {image.kernel_release}, {image.fio_version}")
    click.echo(f"upload it to a cloud with: cephfit image upload {folder} --cloud NAME")


@command.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--cloud", help="Name of the cloud in clouds.yaml.  [default: $OS_CLOUD]")
@click.option("--name", help="Name of the image.  [default: cephfit-guest, or cephfit-guest-postgresql]")
@click.option("--public", is_flag=True, help="Make it visible to all projects; needs an administrator.")
@json_option
def upload(folder: Path, cloud: str | None, name: str | None, public: bool, as_json: bool) -> None:
    """Upload the image in FOLDER to a cloud's Glance, as NAME, NAME-kernel and NAME-ramdisk.

    Safe to run again: existing parts of this build are kept, and another build replaces the former one. Parts of
    a killed upload are replaced after ten minutes, because until then another user may still be uploading them.
    Images of other users, and snapshots of guests, are never changed.
    """
    from cephfit.cloud.guests.guest_image import GuestImage

    image = GuestImage.read(folder)
    connection = connected(cloud or "")
    from cephfit.cloud.guests.image_upload import name_of, upload

    name = name or name_of(image)
    try:
        found = upload(connection, image, name=name, visibility="public" if public else "private")
    finally:
        connection.close()
    if as_json:
        print_json({"name": name, "id": found.id, "changed": list(found.changed)})
    elif found.changed:
        click.echo(f"image {name} is {found.id}: {', '.join(found.changed)} uploaded or changed")
    else:
        click.echo(f"image {name} is {found.id}: this build of it already exists there")


@command.command()
@click.argument("name")
@click.option("--cloud", help="Name of the cloud in clouds.yaml.  [default: $OS_CLOUD]")
@json_option
def remove(name: str, cloud: str | None, as_json: bool) -> None:
    """Delete the image NAME that `cephfit image upload` uploaded, with its kernel and RAM disk."""
    connection = connected(cloud or "")
    from cephfit.cloud.guests.image_upload import remove as delete_image

    try:
        gone = delete_image(connection, name)
    finally:
        connection.close()
    if as_json:
        print_json({"name": name, "deleted": list(gone)})
    else:
        click.echo(f"{', '.join(gone)} deleted" if gone else f"this project has no image {name} of cephfit")

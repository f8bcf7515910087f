"""`cephfit lab`: a real Ceph cluster on one machine."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import Finite, lab_release_option
from cephfit.cli.output import SentenceGroup, json_option, print_json, print_table
from cephfit.core.units import MIB, format_seconds
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.lab.lab_spec import DiskLimits
    from cephfit.lab.lab_status import LabStatus
    from cephfit.lab.openstack.services import CloudStatus

_name_option = click.option("--name", default="default", show_default=True, help="Name of the lab.")
_folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the lab, new or empty.  [default: one in the XDG state folder]",
)


@click.group(cls=SentenceGroup)
def command() -> None:
    """A real one-machine Ceph: monitor, manager, four OSDs on two CRUSH hosts or more, with slow and fast disks.

    It keeps everything in one folder and listens on 127.0.0.1; `down` leaves nothing behind. Several labs can run
    at the same time under different names. Needs root.
    """


@command.command()
@_name_option
@_folder_option
@click.option(
    "--hosts",
    type=click.IntRange(2, 8),
    default=2,
    show_default=True,
    help="Number of CRUSH hosts, with two OSDs each.",
)
@click.option(
    "--with",
    "with_backends",
    default="",
    metavar="NAMES",
    help="Also start servers of other protocols, each on a disk with the limits of class hdd: iscsi, nfs, swift, "
    "or local (only the disk). Several are separated by commas.",
)
@click.option("--openstack", is_flag=True, help="Also start an OpenStack that keeps its volumes on this Ceph.")
@click.option(
    "--filestore",
    type=click.Choice(("xfs", "btrfs", "ext4")),
    help="Use FileStore on this file system for the OSDs instead of BlueStore.",
)
@click.option(
    "--client-network",
    is_flag=True,
    help="Put clients into a network of their own, whose distance sweeps and `cephfit lab network` set.",
)
@lab_release_option
@json_option
def up(
    name: str,
    folder: Path | None,
    hosts: int,
    with_backends: str,
    openstack: bool,
    filestore: str | None,
    client_network: bool,
    release: str | None,
    as_json: bool,
) -> None:
    """Create a lab; returns when all PGs are active+clean and, with --openstack, all services are ready."""
    from cephfit.ceph.environment.scopes import FILESTORE, OsdStore
    from cephfit.lab.cluster import Lab
    from cephfit.lab.daemons.ceph_programs import chosen_release
    from cephfit.lab.lab_spec import LabSpec, parse_backends

    started = time.monotonic()
    with progress_display() as progress:
        spec = LabSpec(
            n_hosts=hosts,
            backends=parse_backends(with_backends),
            client_network=client_network,
            release=chosen_release(release) if release else "",
        )
        if filestore is not None:
            spec = replace(spec, stores=dict.fromkeys(spec.limits, OsdStore(FILESTORE, filestore)))
        lab = Lab.up(name, folder=folder, spec=spec, openstack=openstack, progress=progress)
    seconds = time.monotonic() - started
    status = lab.status()
    if as_json:
        print_json({**status.to_json(), "up_seconds": seconds})
        return
    click.echo(f"lab {name} is up after {format_seconds(seconds)}")
    _show(status)
    click.echo(f"\nCeph's programs connect to it with: ceph -c {lab.conf} status")
    if status.openstack:
        admin, user = status.openstack.clouds
        click.echo(
            "OpenStack's programs connect to it with: "
            f"export OS_CLIENT_CONFIG_FILE={status.openstack.clouds_yaml} "
            f"OS_CLOUD={admin}  (an ordinary project: OS_CLOUD={user})"
        )


@command.command()
@_name_option
@json_option
@click.pass_context
def status(context: click.Context, name: str, as_json: bool) -> None:
    """Show a lab's daemons, disks and health; exit code 2 if a daemon is dead."""
    from cephfit.core.errors import ClusterError
    from cephfit.lab.cluster import Lab

    state = Lab.open(name).status()
    if as_json:
        print_json(state.to_json())
    else:
        _show(state)
    if not state.ready:
        raise ClusterError(
            "the lab is not complete: `lab up` is still running, or was killed",
            where=f"lab {name}",
            remedy=f"remove its parts with `cephfit lab down --name {name}`, then create it again",
        )
    if state.dead:
        raise ClusterError(
            f"daemons that died: {', '.join(state.dead)}",
            where=f"lab {name}",
            remedy=f"`cephfit lab start --name {name}` restarts them; the logs are in {state.folder}/log",
        )


@command.command()
@_name_option
@click.option("--delay-ms", type=Finite(min=0), help="Delay of each packet, in each direction.")
@click.option("--jitter-ms", type=Finite(min=0), help="Standard deviation of the delay.")
@click.option("--loss-pct", type=Finite(min=0, max=100, max_open=True), help="Lost packets of each direction.")
@click.option("--rate-mbit", type=Finite(min=0), help="Limit of each direction in 10**6 bits per second; 0: none.")
@json_option
def network(name: str, as_json: bool, **asked: float | None) -> None:
    """Set the distance between a lab's clients and its daemons, and measure it.

    Without values it only measures; values that are not given become 0. Traffic between daemons, such as
    replication, is not affected. The lab needs `cephfit lab up --client-network`.
    """
    from cephfit.ceph.environment.network_emulation import Emulation
    from cephfit.core.errors import InputError
    from cephfit.lab.cluster import Lab

    path = Lab.open(name).client_network
    if path is None:
        raise InputError(
            "the clients of this lab share the network of this machine",
            where=f"lab {name}",
            remedy="create a lab with `cephfit lab up --client-network`",
        )
    if any(value is not None for value in asked.values()):
        path.set(Emulation(**{key: value or 0.0 for key, value in asked.items()}))
    found = path.calibrate()
    if as_json:
        print_json(found.to_json())
        return
    its, figures = found.values, found.figures
    click.echo(f"a client of lab {name} is {figures.rtt_ms:.2f} ms away (round trip)")
    rate = "not measured" if figures.mbit_per_s is None else f"{figures.mbit_per_s:.0f} Mbit/s"
    rows = [
        ["round trip", f"{2 * its.delay_ms:g} ms", f"{figures.rtt_ms:.2f} ms"],
        ["its deviation", f"{2**0.5 * its.jitter_ms:.3g} ms", f"{figures.rtt_sd_ms:.2f} ms"],
        ["loss, each way", f"{its.loss_pct:g} %", f"{figures.loss_pct:.2f} %"],
        ["rate of a TCP connection", f"{its.rate_mbit:g} Mbit/s" if its.rate_mbit else "no limit", rate],
    ]
    print_table(["", "asked for", "measured"], rows, right=[1, 2])


@command.command()
@_name_option
@json_option
def start(name: str, as_json: bool) -> None:
    """Start the daemons that do not run, for example after a reboot or a crash."""
    from cephfit.lab.cluster import Lab

    lab = Lab.open(name)
    with progress_display() as progress:
        lab.start(progress)
    state = lab.status()
    if as_json:
        print_json(state.to_json())
    else:
        _show(state)


@command.command()
@_name_option
@json_option
def stop(name: str, as_json: bool) -> None:
    """Stop a lab's daemons and keep its data."""
    from cephfit.lab.cluster import Lab

    lab = Lab.open(name)
    lab.stop()
    if as_json:
        print_json({"name": name, "stopped": True})
    else:
        click.echo(f"lab {name} is stopped; `cephfit lab start --name {name}` starts it")


@command.command()
@_name_option
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Find the lab by its folder, if its name is no longer known.",
)
@json_option
def down(name: str, folder: Path | None, as_json: bool) -> None:
    """Remove a lab and everything that belongs to it, whatever state it is in.

    Changes of sweeps to this machine are undone first. If that fails, or the journal is damaged, the lab stays and
    the error states how to fix it.
    """
    from cephfit.core.errors import InputError
    from cephfit.lab.cluster import Lab

    started = time.monotonic()
    try:
        Lab.remove(name, folder=folder)
    except InputError:
        if folder is None:
            raise
        raise InputError(
            "no lab has this folder, and it has no parts of a lab",
            where=str(folder),
            remedy="omit --folder and give the lab's --name",
        ) from None
    seconds = time.monotonic() - started
    if as_json:
        print_json({"name": name, "down_seconds": seconds})
    else:
        click.echo(f"lab {folder or name} was removed in {format_seconds(seconds)}")


@command.command()
@click.option(
    "--release",
    type=click.Choice(("pacific", "reef", "tentacle")),
    help="Delete only this release.  [default: all]",
)
@json_option
def clean(release: str | None, as_json: bool) -> None:
    """Delete the Ceph releases that `lab up --release` installed in the cache folder."""
    from cephfit.core.units import about
    from cephfit.lab.daemons.ceph_programs import remove_roots

    freed = remove_roots(release)
    if as_json:
        print_json(freed)
    elif freed:
        click.echo(f"freed {about(sum(freed.values()))}: {', '.join(freed)}")
    else:
        click.echo("no release is installed in the cache folder")


def _show(status: "LabStatus") -> None:
    click.echo(f"health   {status.health}{''.join(f'  {c}' for c in status.checks)}")
    click.echo(f"Ceph     {status.release}")
    click.echo(f"PGs      {', '.join(f'{n} {s}' for s, n in status.pgs.items()) or '-'}")
    click.echo(f"conf     {status.conf}")
    click.echo(f"monitor  {status.monitor}\n")
    disks = {f"osd.{d.osd}": d for d in status.osd_disks}
    rows = []
    for daemon in status.daemons:
        disk = disks.get(daemon.name)
        rows.append(
            [
                daemon.name,
                str(daemon.pid) if daemon.alive else "DEAD",
                f"{daemon.memory_nbytes / MIB:.0f} MiB",
                disk.host if disk else "",
                disk.device_class if disk else "",
                (disk.device or "not attached") if disk else "",
                (_limits(disk.limits) or "none") if disk else "",
            ]
        )
    print_table(["daemon", "pid", "memory", "host", "class", "disk", "limits"], rows, right=[1, 2])
    if status.backends:
        click.echo()
        rows = [[b.name, b.target, b.device, _limits(b.limits) or "none"] for b in status.backends]
        print_table(["back end", "--target", "disk", "limits"], rows)
    if status.openstack:
        _show_openstack(status.openstack)


def _limits(limits: "DiskLimits | None") -> str:
    return f"{limits.iops} IOPS, {limits.nbytes_per_s / MIB:.0f} MiB/s" if limits else ""


def _show_openstack(cloud: "CloudStatus") -> None:
    types = ", ".join(f"{name} (pool {pool})" for name, pool in cloud.volume_types.items())
    click.echo(f"\nkeystone       {cloud.keystone}")
    click.echo(f"clouds.yaml    {cloud.clouds_yaml}: {', '.join(cloud.clouds)}")
    click.echo(f"volume types   {types}")
    click.echo(f"guests         {cloud.guests_network}\n")
    rows = [[d.name, str(d.pid) if d.alive else "DEAD", f"{d.memory_nbytes / MIB:.0f} MiB"] for d in cloud.daemons]
    rows.append(["all", "", f"{sum(d.memory_nbytes for d in cloud.daemons) / MIB:.0f} MiB"])
    print_table(["service", "pid", "memory"], rows, right=[1, 2])

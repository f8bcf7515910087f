"""`cephfit restore`: undo all changes of cephfit to a target."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import apply_option, cluster_options, target_option
from cephfit.cli.output import json_option, print_json, print_table
from cephfit.core.units import format_seconds
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.core.protocols import Target
    from cephfit.targets.ceph.permanent_configuration import PermanentConfiguration

_NOTHING_TO_UNDO = "the journal on this machine has nothing to undo"


@click.command()
@target_option(
    *(
        "lab",
        "lab:NAME",
        "ceph",
        "ceph:NAME",
        "local:/PATH",
        "iscsi:...",
        "nfs:...",
        "swift:...",
        "openstack:CLOUD",
    ),
    what="Target to restore",
)
@apply_option()
@click.option("--applied", is_flag=True, help="Also undo the configuration that `cephfit apply` left in place.")
@cluster_options
@json_option
def command(target_text: str, cluster: ClusterOptions, apply: bool, applied: bool, as_json: bool) -> None:
    """Undo all changes of cephfit to a target, also after a crash.

    Restores every changed option and kernel value, restarts the OSDs that need it, detaches the clients' disks
    and deletes the volumes and pools that cephfit created. Measured samples stay in the store. Safe to run at any
    time, as often as you like. On a cluster that cephfit did not create (`--target ceph`), it only lists what it
    would do, unless `--apply` is given. A configuration that `cephfit apply` completed stays without `--applied`.
    """
    from cephfit.operations.measuring.cluster_options import is_existing_cluster
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.targets.backends.backend_target import BackendTarget
    from cephfit.targets.local import LocalTarget
    from cephfit.targets.simulated import SimulatedTarget

    if is_existing_cluster(target_text) and not apply:
        _list(target_text, cluster, applied=applied, as_json=as_json)
        return
    started = time.monotonic()
    with progress_display() as progress:
        target = open_target(target_text, for_change=True, progress=progress, cluster=cluster, leave=apply)
        try:
            if isinstance(target, SimulatedTarget):
                _print_nothing_to_do(target.name, as_json=as_json)
                return
            is_unknown = isinstance(target, LocalTarget | BackendTarget) and not target.is_changed()
            if applied:
                _permanent(target, target_text).undo()
            else:
                target.reset()
            kept = "" if applied else _kept(target)
            if is_unknown:
                _print_nothing_known(target.name, as_json=as_json)
                return
            name, health = target.name, target.health()
        finally:
            target.close()
    seconds = time.monotonic() - started
    if as_json:
        print_json(
            {
                "target": name,
                "restored": True,
                "kept": kept,
                "healthy": health.ok,
                "reasons": health.reasons,
                "seconds": seconds,
            }
        )
        return
    what = f"all changes of cephfit except {kept}" if kept else "all changes of cephfit"
    click.echo(f"{name} is restored: {what} are undone ({format_seconds(seconds)})")
    _hint_kept(kept)
    for reason in health.reasons:
        click.echo(f"Not healthy: {reason}")


def restoring(target_text: str, cluster: ClusterOptions) -> str:
    """Return the command line that restores a target.

    Args:
        target_text: as in the command that changed the target.
        cluster: likewise, without the option to take over the lock, which is held since then.
    """
    from cephfit.operations.measuring.cluster_options import is_existing_cluster

    words = ["cephfit", "restore", "--target", target_text]
    if is_existing_cluster(target_text):
        words += [*replace(cluster.for_target(target_text), take_over=False).words(), "--apply"]
    return shlex.join(words)


def _permanent(target: Target, target_text: str) -> PermanentConfiguration:
    from cephfit.core.errors import InputError
    from cephfit.targets.ceph.ceph_target import CephTarget

    if not isinstance(target, CephTarget):
        raise InputError(
            "no configuration can be applied to this target, so none can be undone",
            where=f"--target {target_text}",
            remedy="omit --applied",
        )
    return target.permanent()


def _kept(target: Target) -> str:
    """Return the name of the configuration that `cephfit apply` left in place; empty without one."""
    from cephfit.targets.ceph.ceph_target import CephTarget

    if not isinstance(target, CephTarget) or target.only_pool:
        return ""
    return target.permanent().in_place()


def _hint_kept(kept: str) -> None:
    if kept:
        click.echo(f"{kept}, which `cephfit apply` applied, stays; add --applied to undo it too")


def _print_nothing_to_do(name: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"target": name, "restored": False, "undoings": []})
    else:
        click.echo(f"{name} is a simulation: it changes nothing, so there is nothing to restore")


def _print_nothing_known(name: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"target": name, "restored": False, "undoings": []})
    else:
        click.echo(f"{name}: {_NOTHING_TO_UNDO}. If cephfit changed something, check the path or address")


def _list(target_text: str, cluster: ClusterOptions, *, applied: bool, as_json: bool) -> None:
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.targets.abilities import Previews

    target = open_target(target_text, for_change=False, cluster=cluster)
    try:
        undoings = [*target.undoings()] if isinstance(target, Previews) else []
        kept = "" if applied else _kept(target)
        if applied:
            undoings += _permanent(target, target_text).undoings()
        name = target.name
    finally:
        target.close()
    if as_json:
        print_json({"target": name, "restored": False, "kept": kept, "undoings": [asdict(u) for u in undoings]})
        return
    if not undoings:
        click.echo(f"{name}: {_NOTHING_TO_UNDO}")
        _hint_kept(kept)
        return
    print_table(("what", "now", "then"), [(u.what, u.now or "-", u.then) for u in undoings])
    click.echo()
    _hint_kept(kept)
    click.echo("Nothing was changed. Run the same command with --apply to do it.")

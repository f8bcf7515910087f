"""`cephfit apply`: apply a configuration to a cluster for good, and say how to undo it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import Finite, apply_option, cluster_options, run_option
from cephfit.cli.options.completers import measured_rates, sweep_files, targets
from cephfit.cli.output import json_option, print_json, print_table, sigterm_as_interrupt
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.ceph.delivery.shell_commands import Command
    from cephfit.operations.measuring.cluster_options import ClusterOptions
    from cephfit.operations.recommended import Recommended
    from cephfit.targets.ceph.ceph_target import CephTarget
    from cephfit.targets.ceph.permanent_configuration import PermanentPlan

_NO_SETTINGS = {
    "sim": "a simulation has no settings that stay",
    "local": "a file or device of this machine is no cluster: its queue values go with `echo`, see the commands",
    "openstack": "a cloud's settings are those of the cluster below it",
}


@click.command()
@click.argument("name", metavar="CONFIGURATION")
@click.option(
    "--sweep", "sweep_text", metavar="FILE", shell_complete=sweep_files, help="Sweep file with the configuration."
)
@click.option(
    "--baselines",
    "location",
    metavar="STORE",
    shell_complete=measured_rates,
    help="Store of the run that measured it; instead of --sweep.",
)
@run_option
@click.option(
    "--target",
    "target_text",
    metavar="TARGET",
    shell_complete=targets,
    help="Where to apply it: `ceph`, `ceph:NAME`, `lab`, `lab:NAME`.  [default: only print the commands]",
)
@click.option("--pool", default="", metavar="POOL", help="Existing pool that gets the pool settings.")
@click.option(
    "--accept-risk",
    "accept_risk",
    multiple=True,
    metavar="KEY",
    help="Also apply this setting, which risks data. Repeatable.",
)
@click.option("--measured-elsewhere", is_flag=True, help="Accept a run that measured another storage.")
@click.option(
    "--watch",
    default=60.0,
    show_default=True,
    type=Finite(min=0),
    metavar="SECONDS",
    help="How long to watch the health afterwards; everything is undone if it gets worse.",
)
@apply_option(where="")
@cluster_options
@json_option
def command(
    name: str,
    sweep_text: str | None,
    location: str | None,
    run_id: str | None,
    target_text: str | None,
    pool: str,
    accept_risk: tuple[str, ...],
    measured_elsewhere: bool,
    watch: float,
    apply: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Apply CONFIGURATION of a sweep to a cluster, so that it stays after this command.

    Without --target it prints the shell commands that apply it and those that undo it. With --target it shows
    the change of every setting, the restarts and the data that would move. With --apply it does it: the cluster
    must be healthy, every original value is in a journal on disk before it is changed, every setting is read back,
    and the health is watched. If anything fails, everything is undone, also a configuration that was applied
    before. Later, `cephfit restore --applied` undoes it.
    """
    from cephfit.operations.recommended import of_store, of_sweep

    if (sweep_text is None) == (location is None):
        raise click.UsageError("give the source of the configuration: either --sweep or --baselines")
    if sweep_text is not None and run_id is not None:
        raise click.UsageError("--run selects a run of --baselines")
    found = of_sweep(name, sweep_text) if sweep_text is not None else of_store(name, str(location), run_id)
    if target_text is None:
        if apply or cluster.given():
            raise click.UsageError("name the cluster with --target")
        _print_commands(found, pool or "POOL", as_json=as_json)
        return
    _refuse_other_kinds(target_text)
    request = _Request(found, target_text, cluster, pool, accept_risk, measured_elsewhere)
    if apply:
        _apply(request, watch=watch, as_json=as_json)
    else:
        _dry_run(request, as_json=as_json)


def _print_commands(found: Recommended, pool: str, *, as_json: bool) -> None:
    from cephfit.operations.recommended import echo_commands

    commands = found.commands(pool)
    if as_json:
        document = {"configuration": found.configuration.name, "simulated": found.is_simulated}
        print_json({**document, "commands": _commands_json(commands)})
        return
    if found.is_simulated:
        click.echo(f"# {found.simulated_note}")
    echo_commands(commands, click.echo)


def _commands_json(commands: tuple[Command, ...]) -> list[dict[str, Any]]:
    return [
        {"settings": [str(s) for s in c.settings], "do": c.do, "undo": c.undo, "look": c.look, "where": c.where}
        for c in commands
    ]


def _refuse_other_kinds(target_text: str) -> None:
    from cephfit.core.errors import InputError

    if why := _NO_SETTINGS.get(target_text.partition(":")[0]):
        raise InputError(
            f"no configuration can be applied here: {why}",
            where=f"--target {target_text}",
            remedy="name a Ceph cluster, such as ceph or lab; without --target the commands are printed",
        )


def _open(target_text: str, cluster: ClusterOptions, *, for_change: bool, progress: Any = None) -> CephTarget:
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.targets.ceph.ceph_target import CephTarget

    target = open_target(
        target_text, for_change=for_change, ioengine="rbd", progress=progress, cluster=cluster, leave=for_change
    )
    assert isinstance(target, CephTarget), "other kinds are refused before"
    return target


@dataclass(frozen=True, slots=True)
class _Request:
    """What to apply where, from the command line."""

    found: Recommended
    target_text: str
    cluster: ClusterOptions
    pool: str
    accept_risk: tuple[str, ...]
    elsewhere: bool


def _plan(target: CephTarget, request: _Request) -> tuple[PermanentPlan, str]:
    """Return the plan, and a warning about the run; empty without one."""
    from cephfit.core.values.sample import CLUSTER
    from cephfit.operations.recommended import require_same_cluster

    found, where = request.found, f"--target {request.target_text}"
    fsid = "" if found.run is None else str(target.facts()[CLUSTER])
    warning = require_same_cluster(found, fsid, elsewhere=request.elsewhere, where=where)
    plan = target.permanent().plan(found.configuration, pool=request.pool, accept_risk=request.accept_risk)
    return plan, warning


def _dry_run(request: _Request, *, as_json: bool) -> None:
    from cephfit.ceph.delivery.shell_commands import commands_for
    from cephfit.operations.recommended import echo_commands
    from cephfit.targets.ceph.permanent_configuration import problems

    target = _open(request.target_text, request.cluster, for_change=False)
    try:
        plan, warning = _plan(target, request)
        unhealthy = problems(target.health())
        catalogue = target.catalogue()
        options = {s.key: catalogue.find(s.key) for s in plan.parts.options.settings}
        name = target.name
    finally:
        target.close()
    commands = commands_for(
        request.found.configuration,
        acts_at_runtime=lambda key: (option := options[key]) is not None and option.acts_at_runtime,
        pool=request.pool or "POOL",
        present=plan.present,
    )
    if as_json:
        document = {**plan.to_json(), "target": name, "applied": False, "unhealthy_because": list(unhealthy)}
        print_json({**document, "warning": warning, "commands": _commands_json(commands)})
        _refuse_faults(plan)
        return
    _print_plan(plan, name, warning)
    for reason in unhealthy:
        click.echo(f"The cluster is not healthy, so nothing would be done: {reason}")
    click.echo()
    click.echo("By hand instead:")
    echo_commands(commands, click.echo)
    click.echo()
    _refuse_faults(plan)
    click.echo("Nothing was changed. Run the same command with --apply to do it.")


def _refuse_faults(plan: PermanentPlan) -> None:
    """Refuse a plan that cannot be applied, as the command with ``--apply`` would.

    Raises:
        ClusterError: the plan has faults.
    """
    from cephfit.core.errors import ClusterError

    if plan.faults:
        raise ClusterError(
            f"{plan.configuration.name} cannot be applied: {'; '.join(plan.faults)}",
            where=f"pool {plan.pool}" if plan.pool else "",
            remedy="correct what is refused; nothing was changed",
        )


def _print_plan(plan: PermanentPlan, name: str, warning: str) -> None:
    click.echo(_answer(plan, name))
    for fault in plan.faults:
        click.echo(f"Refused: {fault}")
    for sentence in filter(None, (warning, *plan.warnings)):
        click.echo(f"Note: {sentence}")
    if plan.earlier:
        click.echo(
            f"Note: {plan.earlier} was applied before; its other settings are undone. If this fails, all of "
            f"{plan.earlier} is undone too"
        )
    if plan.differences:
        click.echo()
        rows = [
            (d.place, d.key, d.now or "-", d.then if d.now != d.then else "as it is") for d in plan.differences
        ]
        print_table(("place", "key", "now", "then"), rows)
    for setting, why in plan.parts.by_hand:
        click.echo(f"Left to you: {setting.key} = {setting.value}: {why}")


def _answer(plan: PermanentPlan, name: str) -> str:
    if plan.faults:
        return f"{plan.configuration.name} cannot be applied to {name} like this"
    n = len(plan.changes)
    restarts = f"{len(plan.restarts)} OSDs are restarted one by one" if plan.restarts else "no daemon is restarted"
    change = plan.pool_change
    moved = str(change.moved) if change is not None and change.moved.n_pgs else ""
    moved = moved or ("data moves" if plan.moved_back else "no data moves")
    what = f"changes {n} value{'s' if n != 1 else ''}" if n else "changes nothing: every value is there already"
    return f"{plan.configuration.name} {what} on {name}; {restarts}; {moved}"


def _apply(request: _Request, *, watch: float, as_json: bool) -> None:
    from cephfit.cli.cluster.restore_command import restoring

    undo = restoring(request.target_text, request.cluster)
    with sigterm_as_interrupt(), progress_display() as progress:
        target = _open(request.target_text, request.cluster, for_change=True, progress=progress)
        try:
            plan, warning = _plan(target, request)
            permanent = target.permanent()
            restarted = permanent.apply(plan)
            if watch:
                progress.note(f"applied and read back; watching the health for {watch:g} s")
            permanent.watch(plan, seconds=watch)
            permanent.keep(plan)
            name = target.name
        except KeyboardInterrupt:
            click.echo(f"\nit was not finished; undo it with `{undo}`", err=True)
            raise
        finally:
            target.close()
    undo = f"{undo} --applied"
    if as_json:
        print_json({**plan.to_json(), "target": name, "applied": True, "restarted": restarted, "undo": undo})
        return
    click.echo(f"{plan.configuration.name} is applied to {name}, and every value was read back; it stays")
    rows = [(d.place, d.key, d.now or "-", d.then) for d in plan.changes]
    if rows:
        print_table(("place", "key", "before", "now"), rows)
    if restarted:
        click.echo(f"Restarted: {', '.join(restarted)}")
    for sentence in filter(None, (warning, *plan.warnings)):
        click.echo(f"Note: {sentence}")
    for setting, why in plan.parts.by_hand:
        click.echo(f"Left to you: {setting.key} = {setting.value}: {why}")
    click.echo(f"To undo it: {undo}")

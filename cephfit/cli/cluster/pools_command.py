"""`cephfit pools`: show the pools of a cluster; create pools on chosen devices from a short declaration."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import apply_option, connection_options, daemon_options, target_option
from cephfit.cli.output import SentenceGroup, json_option, print_json, print_table
from cephfit.core.units import MIB, format_nbytes
from cephfit.operations.measuring.cluster_options import ClusterOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cephfit.ceph.pools.declared_pools import PoolChange, PoolsPlan
    from cephfit.targets.ceph.ceph_target import CephTarget

_file = click.argument("file", type=click.Path(path_type=Path))
_target = target_option("lab", "lab:NAME", "ceph", "ceph:NAME")
_adopt = click.option(
    "--adopt",
    multiple=True,
    metavar="POOL",
    help="Allow changes to this existing pool. Repeatable.",
)

_although_unhealthy = click.option(
    "--although-unhealthy",
    is_flag=True,
    help="Continue even if the cluster is not healthy, for example because this change repairs it.",
)


@click.group(cls=SentenceGroup)
def command() -> None:
    """Pools placed on chosen devices: show, plan offline, create and remove them.

    A FILE declares pools (`cephfit pools example` prints one). The required CRUSH rules and buckets are appended
    to the cluster's map, which is first tested offline for bad mappings, balance, and the data that would move.
    """


@command.command()
def example() -> None:
    """Print an example of a file that declares pools."""
    from importlib import resources

    from cephfit import templates

    click.echo(resources.files(templates).joinpath("pools.example.yaml").read_text(), nl=False)


@command.command()
@_target
@connection_options
@json_option
def show(target_text: str, cluster: ClusterOptions, as_json: bool) -> None:
    """Show each pool: replicas or erasure code, devices, balance of its PGs, cache tiers; changes nothing."""
    target = _open(target_text, cluster, for_change=False)
    try:
        descriptions = target.pool_descriptions()
    finally:
        target.close()
    if as_json:
        print_json([p.as_json() for p in descriptions])
        return
    rows = [
        (
            p.name,
            p.kind,
            p.rule,
            _shares(p.classes),
            _shares(p.primary_classes),
            str(p.n_osds),
            str(p.pg_num),
            f"{p.busiest:.2f}",
            "-" if p.balancing_moves is None else str(p.balancing_moves),
            _about(p.stored_nbytes),
            "; ".join(filter(None, (p.tier, p.compression))),
        )
        for p in descriptions
    ]
    headers = (
        "pool",
        "kind",
        "rule",
        "copies on",
        "primaries on",
        "OSDs",
        "PGs",
        "busiest",
        "moves",
        "stored",
        "",
    )
    print_table(headers, rows, right=(5, 6, 7, 8, 9))
    click.echo(
        "\nbusiest: PGs on the fullest OSD relative to its fair share; moves: upmaps that would balance them"
    )
    if any(p.balancing_moves is None for p in descriptions):
        click.echo(
            "Note: the moves are unknown: this machine's osdmaptool cannot read the cluster's OSD map; install "
            "ceph-base of the cluster's release. The balance is that of the PGs as the manager reports them."
        )


@command.command()
@_file
@_target
@_adopt
@connection_options
@json_option
def plan(file: Path, target_text: str, adopt: tuple[str, ...], cluster: ClusterOptions, as_json: bool) -> None:
    """Show what the pools of FILE would change, tested offline; changes nothing. Exit code 2 if it is refused."""
    _show_plan(file, target_text, adopt, cluster, as_json=as_json)


def _show_plan(
    file: Path, target_text: str, adopt: tuple[str, ...], cluster: ClusterOptions, *, as_json: bool
) -> None:
    from cephfit.core.errors import ClusterError
    from cephfit.sweep.declaration.file_settings import read_pool_file

    declared = read_pool_file(file)
    target = _open(target_text, cluster, for_change=False)
    try:
        found = target.declared_pools().plan(declared.pools, adopt=frozenset(adopt))
    finally:
        target.close()
    if as_json:
        print_json(found.as_json())
    else:
        _print_plan(found)
    if found.faults:
        raise ClusterError(
            "these pools are refused", where=str(file), remedy="correct what the plan lists as refused"
        )


@command.command()
@_file
@_target
@_adopt
@apply_option(where="")
@_although_unhealthy
@daemon_options
@json_option
def apply(
    file: Path,
    target_text: str,
    adopt: tuple[str, ...],
    apply: bool,
    although_unhealthy: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Create the pools of FILE, or change those created before to match it. Only with --apply.

    The pools stay: `cephfit restore` does not touch them or their data; `cephfit pools remove` removes them.
    The cluster must be healthy; afterwards every value, code and placement is read back.
    """
    from cephfit.sweep.declaration.file_settings import read_pool_file
    from cephfit.sweep.execution.preflight import await_healthy

    if not apply:
        _show_plan(file, target_text, adopt, cluster, as_json=as_json)
        if not as_json:
            click.echo("\nNothing was changed. Run the same command with --apply to do it.")
        return
    declared = read_pool_file(file)
    target = _open(target_text, cluster, for_change=True)
    try:
        if not although_unhealthy:
            await_healthy(target)
        done = target.declared_pools().apply(declared.pools, adopt=frozenset(adopt))
    finally:
        target.close()
    if as_json:
        print_json(done.as_json())
        return
    for change in done.changes:
        words = {"new": "created", "ours": "as declared", "adopted": "changed", "theirs": "unchanged"}
        click.echo(f"pool {change.plan.name}: {words[change.state]}; {change.moved}")


@command.command()
@_file
@_target
@click.option("--with-data", is_flag=True, help="Delete pools even if they hold data. The data is lost.")
@apply_option(where="")
@_although_unhealthy
@daemon_options
@json_option
def remove(
    file: Path,
    target_text: str,
    with_data: bool,
    apply: bool,
    although_unhealthy: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Delete the pools of FILE that `pools apply` created, with their rules; adopted ones get their values back.

    This restores the CRUSH map. If it was changed by others meanwhile, only cephfit's parts are removed.
    """
    from cephfit.ceph.pools.pool_plan import POOL_PREFIX
    from cephfit.sweep.declaration.file_settings import read_pool_file
    from cephfit.sweep.execution.preflight import await_healthy

    declared = read_pool_file(file, whatever_name=True)  # the journal records what `pools apply` created
    target = _open(target_text, cluster, for_change=apply)
    try:
        if apply and not although_unhealthy:
            await_healthy(target)
        pools = target.declared_pools()
        done = pools.remove(declared.pools, with_data=with_data) if apply else pools.to_remove(declared.pools)
    finally:
        target.close()
    if as_json:
        print_json({"removed": apply, "what": list(done)})
        return
    for sentence in done:
        click.echo(sentence)
    if not done:
        click.echo("none of these pools was created or changed by `cephfit pools apply`")
        if any(name.startswith(POOL_PREFIX) for name in declared.pools):
            click.echo(f"{POOL_PREFIX}* are the pools of sweeps: `cephfit restore` deletes them")
    elif not apply:
        click.echo("\nNothing was changed. Run the same command with --apply to do it.")


def _open(target_text: str, cluster: ClusterOptions, *, for_change: bool) -> "CephTarget":
    from cephfit.core.errors import InputError
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.targets.ceph.ceph_target import CephTarget

    target = open_target(target_text, for_change=for_change, cluster=cluster, leave=for_change)
    if not isinstance(target, CephTarget):
        target.close()
        raise InputError(
            "this target has no pools", where=f"--target {target_text}", remedy="name a Ceph cluster, such as lab"
        )
    return target


def _print_plan(found: "PoolsPlan") -> None:
    rows = [_row(change) for change in found.changes]
    print_table(("pool", "", "kind", "where", "values", "moves"), rows)
    if found.proposal is not None:
        click.echo("\nAdded to the CRUSH map (other lines stay unchanged):")
        for line in found.proposal.added:
            click.echo(f"+ {line}")
        if not found.proposal.added:
            click.echo("  nothing: the rules exist already")
        click.echo(f"According to the map alone, {found.proposal.moved}.\n")
        trials = [
            (
                t.rule,
                str(t.size),
                f"{t.n_bad} of {t.n_inputs}",
                str(t.n_shared),
                f"{t.busiest:.2f}",
                " ".join(f"osd.{osd}:{got}" for osd, (got, _) in t.load.items()),
            )
            for t in found.proposal.trials
        ]
        print_table(
            ("rule", "size", "bad mappings", "sharing a domain", "busiest", "PGs"), trials, right=(1, 3, 4)
        )
    for warning in found.warnings:
        click.echo(f"Note: {warning}")
    for fault in found.faults:
        click.echo(f"Refused: {fault}")


def _row(change: "PoolChange") -> tuple[str, ...]:
    plan = change.plan
    state = {"new": "new", "ours": "exists, ours", "adopted": "exists, adopted", "theirs": "exists, not ours"}
    kind = f"{plan.erasure['k']}+{plan.erasure['m']}" if plan.erasure else f"{plan.size} copies"
    if plan.mode:
        kind += f", {plan.mode} cache"
    values = ", ".join(
        f"{key} = {then}" if now is None else f"{key}: {now} -> {then}"
        for key, (now, then) in change.values.items()
    )
    place = str(plan.placement) if plan.placement else f"rule {plan.values.get('crush_rule', 'of the cluster')}"
    moved = str(change.moved) if change.state in ("adopted", "ours") else "-"
    return plan.name, state[change.state], kind, place, values or "unchanged", moved


def _shares(counts: "Mapping[str, int]") -> str:
    if len(counts) < 2:
        return "".join(counts)
    total = sum(counts.values())
    return " ".join(f"{name} {100 * n / total:.0f}%" for name, n in counts.items())


def _about(nbytes: int) -> str:
    return format_nbytes(nbytes - nbytes % MIB) if nbytes >= MIB else f"{nbytes} B"

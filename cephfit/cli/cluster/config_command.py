"""`cephfit config`: the values of options from configuration file, environment and command line."""

from typing import Any

import click
from click.core import ParameterSource

from cephfit.cli.options.common_options import cluster_options, store_option
from cephfit.cli.options.completers import targets
from cephfit.cli.options.config_file import OPTIONS, Entry, config_file
from cephfit.cli.output import SentenceGroup, json_option, print_json, print_table
from cephfit.operations.measuring.cluster_options import ClusterOptions


@click.group(cls=SentenceGroup)
def command() -> None:
    """Options that many commands share, from a configuration file and the environment.

    The command line overrides the environment (CEPHFIT_CONF, CEPHFIT_SSH_USER, ...), which overrides the file.
    The file is that of `cephfit --config FILE`, else of $CEPHFIT_CONFIG, else
    $XDG_CONFIG_HOME/cephfit/config.yaml (docs/clusters.md).
    """


@command.command("show")
@click.option(
    "--target",
    "target_text",
    metavar="TARGET",
    shell_complete=targets,
    help="Include the file's section for this target, such as `ceph:NAME`.",
)
@store_option
@cluster_options
@json_option
@click.pass_context
def show(
    context: click.Context, target_text: str | None, store: str, cluster: ClusterOptions, as_json: bool
) -> None:
    """Show the value of each option that is in effect, and where it comes from."""
    config = config_file()
    of_file = config.of_target(target_text)
    merged = cluster.merged(target_text or "")
    names = {"store": "store", **{name: kind.field for name, kind in OPTIONS.items()}}
    if config.store is not None:
        of_file["store"] = config.store
    rows: list[tuple[str, Any, str]] = []
    for name, parameter in names.items():
        value = store if name == "store" else getattr(merged, parameter)
        source = context.get_parameter_source(parameter)
        if source is ParameterSource.COMMANDLINE:
            origin = "command line"
        elif source is ParameterSource.ENVIRONMENT:
            origin = f"$CEPHFIT_{name.upper().replace('-', '_')}"
        else:
            origin = of_file[parameter].where if _is(value, of_file.get(parameter)) else "default"
        rows.append((name, _shown(value), origin))
    if as_json:
        document = {name: {"value": value, "from": origin} for name, value, origin in rows}
        print_json({"file": str(config.path), "exists": config.path.exists(), "options": document})
        return
    click.echo(f"configuration file: {config.path}{'' if config.path.exists() else ' (does not exist)'}")
    if config.targets:
        click.echo(f"sections of targets: {', '.join(config.targets)}")
    click.echo()
    print_table(("option", "value", "from"), [(name, value or "-", origin) for name, value, origin in rows])


def _is(value: Any, entry: Entry | None) -> bool:
    return entry is not None and entry.value == value


def _shown(value: Any) -> str:
    """Format a value for display; an address without its password."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(value)
    text = str(value)
    scheme, is_address, rest = text.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}@{place}" if is_address and at else text

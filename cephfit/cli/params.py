"""`cephfit params`: what can be set on a cluster, and what to know before one touches it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.cluster_options import ClusterOptions, connection_options
from cephfit.cli.groups import SentenceGroup
from cephfit.cli.output import json_option, print_json, print_table
from cephfit.configuration import as_yaml

if TYPE_CHECKING:
    from cephfit.sweep.options.option import Option
    from cephfit.sweep.options.option_tree import Parameter

_LEGEND = (
    "tags: restart = a change takes effect only after the daemon restarts, creation = only new OSDs or clusters\n"
    "      read it, risk = some values put data at risk, recovery = concerns recovery, backfill or scrubbing"
)


@click.group(cls=SentenceGroup)
def command() -> None:
    """The options of a cluster: Ceph's own, as a tree, with what to know before changing one.

    They come from a running cluster (`--target`) and are kept per version: `--release 16.2` shows those of a
    version that was asked for once, without a cluster.
    """


def _source_options(function: Any) -> Any:
    release = click.option(
        "--release",
        metavar="VERSION",
        help="Show the options kept of this version, such as 16.2.15, without a cluster.",
    )
    target = click.option(
        "--target",
        "target_text",
        default="lab",
        show_default=True,
        metavar="TARGET",
        help="Cluster to ask for its options.",
    )
    return target(release(connection_options(function)))


@command.command("tree")
@click.argument("component", required=False)
@_source_options
@json_option
def tree(
    component: str | None, target_text: str, release: str | None, cluster: ClusterOptions, as_json: bool
) -> None:
    """Show the tree: components with their counts, or the parameters of one COMPONENT by category."""
    from cephfit.errors import InputError
    from cephfit.sweep.options.option_tree import COMPONENTS
    from cephfit.sweep.yaml_lines import nearest

    version, parameters = _parameters(target_text, release, cluster)
    if component is not None:
        if component not in COMPONENTS:
            raise InputError(f"{component!r} is not a component of Ceph", remedy=nearest(component, COMPONENTS))
        parameters = tuple(p for p in parameters if p.component == component)
    if as_json:
        print_json({"ceph_version": version, "parameters": [_document(p) for p in parameters]})
    elif component is None:
        _print_components(version, parameters)
    else:
        _print_parameters(parameters)


@command.command("search")
@click.argument("words", nargs=-1, required=True)
@_source_options
@json_option
def search(
    words: tuple[str, ...], target_text: str, release: str | None, cluster: ClusterOptions, as_json: bool
) -> None:
    """Find the parameters whose name or description contains all the WORDS."""
    from cephfit.sweep.options.option_tree import found_by

    version, parameters = _parameters(target_text, release, cluster)
    found = found_by(parameters, words)
    if as_json:
        print_json({"ceph_version": version, "parameters": [_document(p) for p in found]})
    elif found:
        _print_parameters(found)
    else:
        click.echo(f"no option of Ceph {version} has {' and '.join(words)} in its name or description")


@command.command("show")
@click.argument("name")
@_source_options
@json_option
def show(name: str, target_text: str, release: str | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Show all that is known about the option NAME, even if this release no longer has it."""
    from cephfit.sweep.options.option_history import history_of

    key = name.replace("-", "_").replace(" ", "_")
    version, parameters = _parameters(target_text, release, cluster)
    parameter = next((p for p in parameters if p.option.name == key), None)
    history = history_of(key)
    if parameter is None:
        _show_missing(key, version, [p.option.name for p in parameters], as_json=as_json)
    elif as_json:
        seen = {"first": history.first, "last": history.last} if history else None
        print_json({"ceph_version": version, **_document(parameter), "releases": seen})
    else:
        _print_parameter(parameter, f"it {history.sentence}" if history else "")


def _parameters(
    target_text: str, release: str | None, cluster: ClusterOptions
) -> "tuple[str, tuple[Parameter, ...]]":
    """The version and its tree, of a kept release or of a running cluster, whose options are then kept."""
    from cephfit.sweep.options import option_archive
    from cephfit.sweep.options.option_tree import tree_of

    if release is not None:
        version, options = option_archive.kept(release)
        return version, tree_of(options)
    version, options = _ask(target_text, cluster)
    option_archive.keep(version, options)
    return version, tree_of(options)


def _ask(target_text: str, cluster: ClusterOptions) -> "tuple[str, tuple[Option, ...]]":
    from cephfit.cli.target_choice import open_target
    from cephfit.errors import InputError
    from cephfit.sweep.abilities import HasCatalogue

    target = open_target(target_text, for_change=False, cluster=cluster)
    try:
        if not isinstance(target, HasCatalogue):
            raise InputError(
                f"target {target.name} is not a Ceph cluster that has options",
                remedy="name a cluster, such as lab, or a version with --release",
            )
        catalogue = target.catalogue()
        return catalogue.version(), catalogue.all()
    finally:
        target.close()


def _document(parameter: "Parameter") -> dict[str, Any]:
    return {
        **parameter.option.to_json(),
        "partition": "ceph",
        "component": parameter.component,
        "category": parameter.category,
        "readers": parameter.readers,
        "takes_effect": parameter.option.takes_effect,
        "affects_recovery": parameter.option.affects_recovery,
        "risks": [{"when": risk.when, "why": risk.why} for risk in parameter.risks],
    }


def _print_components(version: str, parameters: "Sequence[Parameter]") -> None:
    from cephfit.sweep.options.option_tree import COMPONENTS

    def row(title: str, some: "Sequence[Parameter]") -> list[str]:
        counts = [
            len({(p.component, p.category) for p in some}),
            len(some),
            sum("restart" in p.tags for p in some),
            sum("creation" in p.tags for p in some),
            sum("risk" in p.tags for p in some),
            sum("recovery" in p.tags for p in some),
        ]
        return [title, *map(str, counts)]

    by_component = [(c, [p for p in parameters if p.component == c]) for c in COMPONENTS]
    click.echo(f"Partition ceph: the options of Ceph {version}\n")
    print_table(
        ("component", "categories", "parameters", "restart", "creation", "risk", "recovery"),
        [*(row(c, some) for c, some in by_component if some), row("all", parameters)],
        right=(1, 2, 3, 4, 5, 6),
    )
    click.echo(f"\n{_LEGEND}\n`cephfit params tree osd` shows one component.")


def _print_parameters(parameters: "Iterable[Parameter]") -> None:
    rows = [
        (
            f"{p.component}/{p.category}",
            p.option.name,
            p.option.type,
            _default(p.option),
            ",".join(p.tags),
            p.option.description,
        )
        for p in parameters
    ]
    print_table(("place", "parameter", "type", "default", "tags", "description"), rows)
    click.echo(f"\n{_LEGEND}")


def _default(option: "Option") -> str:
    text = as_yaml(option.default)
    return text if len(text) <= 24 else f"{text[:21]}..."


def _print_parameter(parameter: "Parameter", history: str) -> None:
    option = parameter.option
    effect = {
        "at once": "at once",
        "restart": "after a restart of the daemons or clients that read it",
        "creation": "only in OSDs or clusters created with it",
    }
    limits = (
        " to ".join(part or "..." for part in (option.least, option.most)) if option.least + option.most else ""
    )
    lines = [
        ("place", f"{parameter.component} / {parameter.category} (partition ceph)"),
        ("type", option.type + (f", one of {', '.join(option.choices)}" if option.choices else "")),
        ("default", str(option.default)),
        ("range", limits),
        ("read by", ", ".join(parameter.readers) or "all daemons and clients"),
        ("level", option.level),
        ("takes effect", effect[option.takes_effect]),
        ("recovery", "affects recovery, backfill or scrubbing" if option.affects_recovery else ""),
        *(("risk", f"{risk.why} ({risk.when})") for risk in parameter.risks),
        ("history", history),
        ("see also", ", ".join(option.see_also)),
    ]
    click.echo(option.name)
    if option.description:
        click.echo(f"  {option.description}")
    for title, text in lines:
        if text:
            click.echo(f"  {title:<13} {text}")
    if option.more:
        click.echo(click.wrap_text(option.more, 100, initial_indent="  ", subsequent_indent="  "))


def _show_missing(key: str, version: str, names: Sequence[str], *, as_json: bool) -> None:
    from cephfit.errors import InputError
    from cephfit.sweep.options.option_history import history_of
    from cephfit.sweep.settings.catalogue import nearest_option

    history = history_of(key)
    if history is None:
        raise InputError(
            f"neither Ceph {version} nor any other known release has an option {key}",
            remedy=nearest_option(key, names),
        )
    if as_json:
        print_json(
            {
                "ceph_version": version,
                "name": key,
                "missing": history.sentence,
                "releases": {"first": history.first, "last": history.last},
            }
        )
    else:
        click.echo(f"{key}\n  Ceph {version} does not have it: it {history.sentence}")

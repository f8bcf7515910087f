"""`cephfit params`: the options of a cluster, their effects and risks."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import connection_options
from cephfit.cli.options.completers import components, options_of_ceph, releases, targets
from cephfit.cli.output import OUTPUT_FILE, SentenceGroup, json_option, print_json, print_table, written_whole
from cephfit.core.values.configuration import as_yaml
from cephfit.operations.measuring.cluster_options import ClusterOptions

if TYPE_CHECKING:
    from cephfit.ceph.options.option import Option
    from cephfit.ceph.options.option_archive import KnownOptions
    from cephfit.ceph.options.option_catalogue import Parameter

_LEGEND = (
    "tags: restart = a change takes effect only after the daemon restarts, creation = only new OSDs or clusters\n"
    "      read it, risk = some values put data at risk, recovery = concerns recovery, backfill or scrubbing"
)


@click.group(cls=SentenceGroup)
def command() -> None:
    """The options of a Ceph cluster as a tree, with the effects and risks of changing them.

    They come from a running cluster (`--target`), and are stored per version on this machine. `--release 16.2`
    needs no cluster: it shows those stored here, else those included in cephfit (`cephfit params releases`).
    """


def _source_options(function: Any) -> Any:
    release = click.option(
        "--release",
        metavar="VERSION",
        shell_complete=releases,
        help="Show the options of this version, such as 16.2 or reef, without a cluster.",
    )
    target = click.option(
        "--target",
        "target_text",
        metavar="TARGET",
        shell_complete=targets,
        help="Cluster whose options to show.  [default: lab]",
    )
    return target(release(connection_options(function)))


@command.command("tree")
@click.argument("component", required=False, shell_complete=components)
@_source_options
@json_option
def tree(
    component: str | None, target_text: str | None, release: str | None, cluster: ClusterOptions, as_json: bool
) -> None:
    """Show the tree: components with their counts, or the parameters of one COMPONENT by category."""
    from cephfit.ceph.options.option_catalogue import COMPONENTS, tree_of
    from cephfit.core.errors import InputError
    from cephfit.core.yaml_lines import nearest

    known = _known(target_text, release, cluster)
    parameters = tree_of(known.options)
    if component is not None:
        if component not in COMPONENTS:
            raise InputError(f"{component!r} is not a component of Ceph", remedy=nearest(component, COMPONENTS))
        parameters = tuple(p for p in parameters if p.component == component)
    if as_json:
        print_json({**_origin(known), "parameters": [_document(p) for p in parameters]})
    elif component is None:
        _print_components(known, parameters)
    else:
        _print_parameters(parameters)


@command.command("search")
@click.argument("words", nargs=-1, required=True, shell_complete=options_of_ceph)
@_source_options
@json_option
def search(
    words: tuple[str, ...], target_text: str | None, release: str | None, cluster: ClusterOptions, as_json: bool
) -> None:
    """Find the parameters whose name or description contains all the WORDS."""
    from cephfit.ceph.options.option_catalogue import found_by, tree_of

    known = _known(target_text, release, cluster)
    parameters = tree_of(known.options)
    found = found_by(parameters, words)
    if as_json:
        print_json({**_origin(known), "parameters": [_document(p) for p in found]})
    elif found:
        _print_parameters(found)
    else:
        click.echo(f"no option of Ceph {known.version} has {' and '.join(words)} in its name or description")


@command.command("show")
@click.argument("name", shell_complete=options_of_ceph)
@_source_options
@json_option
def show(name: str, target_text: str | None, release: str | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Show all that is known about the option NAME, even if this release no longer has it."""
    from cephfit.ceph.options.option_catalogue import tree_of
    from cephfit.ceph.options.option_history import history_of

    key = name.replace("-", "_").replace(" ", "_")
    known = _known(target_text, release, cluster)
    parameters = tree_of(known.options)
    parameter = next((p for p in parameters if p.option.name == key), None)
    history = history_of(key)
    if parameter is None:
        _show_missing(key, known, [p.option.name for p in parameters], as_json=as_json)
    elif as_json:
        seen = {"first": history.first, "last": history.last} if history else None
        print_json({**_origin(known), **_document(parameter), "releases": seen})
    else:
        _print_parameter(parameter, f"it {history.sentence}" if history else "", f"Ceph {known}")


@command.command("releases")
@json_option
def list_releases(as_json: bool) -> None:
    """List the releases whose options are known without a cluster (`--release`)."""
    from cephfit.ceph.options.option_archive import known_versions

    versions = known_versions()
    if as_json:
        print_json([{"ceph_version": version, "source": source} for version, source in versions.items()])
    else:
        print_table(("release", "its options"), list(versions.items()))


@command.command("changed")
@click.argument("releases_text", metavar="OLDER..NEWER")
@click.option(
    "--prefix", default="", metavar="TEXT", help="Only options whose name begins with this, such as osd_."
)
@click.option("--dev", is_flag=True, help="Also options that are meant for Ceph's developers.")
@json_option
def changed(releases_text: str, prefix: str, dev: bool, as_json: bool) -> None:
    """Show which options changed between two releases: removed, replaced, added, and new defaults.

    OLDER..NEWER are releases such as pacific..reef or 16.2..20.2 (`cephfit params releases`).
    """
    from dataclasses import asdict

    from cephfit.ceph.options.option_archive import changes_between, releases_of

    older, newer = releases_of(releases_text)
    changes = [
        change
        for change in changes_between(older, newer)
        if change.name.startswith(prefix) and (dev or change.level != "dev")
    ]
    if as_json:
        print_json({"older": older.version, "newer": newer.version, "changes": [asdict(c) for c in changes]})
        return
    count = {kind: sum(c.kind == kind for c in changes) for kind in ("removed", "replaced", "added", "default")}
    click.echo(
        f"From Ceph {older.version} to {newer.version}: {count['removed']} options removed, {count['replaced']} "
        f"replaced, {count['added']} added, {count['default']} with another default\n"
    )
    rows = [
        (c.kind, c.name, _value_text(c.before), _value_text(c.after), _about_change(c.instead, c.description))
        for c in changes
    ]
    print_table(("change", "parameter", older.version, newer.version, "description"), rows)


def _value_text(value: object) -> str:
    text = "" if value is None else as_yaml(value)
    return text if len(text) <= 24 else f"{text[:21]}..."


def _about_change(instead: Sequence[str], description: str) -> str:
    return f"use {', '.join(instead)}" if instead else description


@command.command("export")
@_source_options
@click.option(
    "-o",
    "--output",
    type=OUTPUT_FILE,
    required=True,
    metavar="FILE",
    help="File to write: JSON, compressed where the name ends with .gz.",
)
def export(target_text: str | None, release: str | None, cluster: ClusterOptions, output: Path) -> None:
    """Write all options of a cluster or a release to a file, in the format that cephfit uses."""
    from cephfit.ceph.options.option_archive import as_file

    known = _known(target_text, release, cluster)
    with written_whole(output, what="the options") as place:
        place.write_bytes(as_file(known.version, known.options, output))
    click.echo(f"{output}: {len(known.options)} options of Ceph {known}")


def _known(target_text: str | None, release: str | None, cluster: ClusterOptions) -> "KnownOptions":
    """Return the options of a known release, or of a running cluster, which are then stored."""
    from cephfit.ceph.options import option_archive
    from cephfit.core.errors import CephfitError, InputError

    if release is not None:
        if target_text is not None:
            raise InputError("--release needs no --target", remedy="omit one of them")
        return option_archive.known(release)
    try:
        version, options = _ask(target_text or "lab", cluster)
    except CephfitError as error:
        if target_text is not None:
            raise
        versions = ", ".join(option_archive.known_versions())
        raise InputError(
            f"no cluster is available: {error.what}",
            where="--target lab (the default)",
            remedy=f"name a cluster with --target, or a release with --release: {versions}",
        ) from None
    option_archive.keep(version, options)
    return option_archive.KnownOptions(version, options, f"of {target_text or 'lab'}")


def _ask(target_text: str, cluster: ClusterOptions) -> "tuple[str, tuple[Option, ...]]":
    from cephfit.core.errors import InputError
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.targets.abilities import HasCatalogue

    target = open_target(target_text, for_change=False, cluster=cluster)
    try:
        if not isinstance(target, HasCatalogue):
            raise InputError(
                f"target {target.name} is not a Ceph cluster with options",
                remedy="name a cluster, such as lab, or a version with --release",
            )
        catalogue = target.catalogue()
        return catalogue.version(), catalogue.all()
    finally:
        target.close()


def _origin(known: "KnownOptions") -> dict[str, str]:
    return {"ceph_version": known.version, "source": known.source}


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


def _print_components(known: "KnownOptions", parameters: "Sequence[Parameter]") -> None:
    from cephfit.ceph.options.option_catalogue import COMPONENTS

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
    click.echo(f"Partition ceph: the options of Ceph {known}\n")
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
    return _value_text(option.default)


def _print_parameter(parameter: "Parameter", history: str, source: str) -> None:
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
        ("as of", source),
    ]
    click.echo(option.name)
    if option.description:
        click.echo(f"  {option.description}")
    for title, text in lines:
        if text:
            click.echo(f"  {title:<13} {text}")
    if option.more:
        click.echo(click.wrap_text(option.more, 100, initial_indent="  ", subsequent_indent="  "))


def _show_missing(key: str, known: "KnownOptions", names: Sequence[str], *, as_json: bool) -> None:
    from cephfit.ceph.options.option_catalogue import nearest_option
    from cephfit.ceph.options.option_history import history_of
    from cephfit.core.errors import InputError

    history = history_of(key)
    if history is None:
        raise InputError(
            f"neither Ceph {known.version} nor any other known release has an option {key}",
            remedy=nearest_option(key, names) or "`cephfit params search WORD` finds options by their description",
        )
    if as_json:
        print_json(
            {
                **_origin(known),
                "name": key,
                "missing": history.sentence,
                "releases": {"first": history.first, "last": history.last},
            }
        )
    else:
        click.echo(f"{key}\n  Ceph {known.version} does not have it: it {history.sentence}")

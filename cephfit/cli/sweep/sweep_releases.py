"""The part of `cephfit sweep plan` on releases of Ceph: settings that they lack, and defaults that they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.terminal.output import print_table
from cephfit.core.protocols import Target

if TYPE_CHECKING:
    from cephfit.sweep.sweep_plan import Sweep

_WIDEST = 28
"""Longest value in the table; --json has all of it."""


def releases_document(sweep: Sweep, releases: Sequence[str], target: Target | None) -> dict[str, Any] | None:
    """Return what a sweep means on releases of Ceph; None for a target that is not a Ceph cluster.

    Args:
        sweep: to measure.
        releases: chosen by the user; all known ones if empty.
        target: that will be measured; it says itself what it lacks.

    Raises:
        InputError: a release is unknown, one of the chosen ones lacks a setting, or no release has an option.
    """
    from cephfit.sweep.release_check import (
        lacking_settings,
        release_notes,
        releases_called,
        require_settings,
        unset_defaults,
    )
    from cephfit.targets.abilities import HasCatalogue

    if target is not None and not isinstance(target, HasCatalogue):
        return None
    chosen = releases_called(releases)
    if releases:
        require_settings(sweep, chosen)
    compared = chosen if len(chosen) > 1 else releases_called(())
    return {
        "releases": [release.version for release in chosen],
        "target_release": None if target is None else target.catalogue().version(),
        "lacking": [
            {"configuration": one.configuration, "key": one.key, "releases": list(one.versions), "why": one.why}
            for one in (lacking_settings(sweep, chosen) if target is None else ())
        ],
        "notes": [note for release in chosen for note in release_notes(sweep, release)] if target is None else [],
        "defaults": [
            {
                "option": one.default.name,
                "values": dict(zip((r.version for r in compared), one.default.values, strict=True)),
                "shown": list(one.default.shown),
                "acts_on": one.default.acts_on.value,
                "what": one.default.what,
                "at_creation": one.default.at_creation,
                "set_by": list(one.set_by),
            }
            for one in unset_defaults(sweep, compared)
        ],
    }


def print_releases(document: Mapping[str, Any] | None) -> None:
    """Print the part of a plan on releases, for people."""
    if document is None:
        return
    if document["lacking"]:
        click.echo()
        click.echo("Settings that some releases lack, or that have no effect there:")
        rows = [(d["configuration"], ", ".join(d["releases"]), d["why"]) for d in document["lacking"]]
        print_table(("configuration", "not on", "why"), rows)
    for note in document["notes"]:
        click.echo(f"Note: {note}")
    if document["defaults"]:
        versions = list(document["defaults"][0]["values"])
        here = f" (this cluster: {document['target_release']})" if document["target_release"] else ""
        click.echo()
        click.echo(f"Defaults of releases{here} that differ, for options that this sweep does not always set:")
        print_table(
            ("option", *versions, "acts on", "set by"),
            [
                (d["option"], *map(_short, d["shown"]), d["acts_on"], ", ".join(d["set_by"]) or "-")
                for d in document["defaults"]
            ],
        )


def _short(value: str) -> str:
    return value if len(value) <= _WIDEST else f"{value[: _WIDEST - 3]}..."

"""A recommended configuration: found in a sweep file or a store, and as commands that people can type."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import InputError
from cephfit.core.values.configuration import Configuration
from cephfit.core.yaml_lines import nearest

if TYPE_CHECKING:
    from cephfit.ceph.delivery.shell_commands import Command
    from cephfit.core.values.sample import Run

_SHOWN = 3
"""Commands in a short recommendation."""
_LATEST = "99"
"""Stands for a release without a known version: the newest catalogue of options decides."""


@dataclass(frozen=True, slots=True)
class Recommended:
    """A configuration and its source.

    Attributes:
        configuration: with its settings.
        source: words of the command line that name it: ``--baselines STORE --run RUN`` or ``--sweep FILE``.
        run: that measured it; None from a sweep file.
    """

    configuration: Configuration
    source: tuple[str, ...]
    run: Run | None = None

    def apply_line(self, target: str = "TARGET") -> str:
        """Return the command line that shows what applying it would change; for no target, its commands."""
        from cephfit.ceph.delivery.shell_commands import parts_of

        words = ["cephfit", "apply", self.configuration.name, *self.source]
        pool = ["--pool", "POOL"] if parts_of(self.configuration).pool.settings else []
        return shlex.join([*words, "--target", target, *pool] if target else words)

    def to_json(self) -> dict[str, Any]:
        """Return the command line, and every command with its undo."""
        return {"apply": self.apply_line(), "commands": [asdict(c) for c in self.commands()]}

    @property
    def is_simulated(self) -> bool:
        return self.run is not None and self.run.is_simulated

    @property
    def simulated_note(self) -> str:
        return (
            "SIMULATED: no disk was measured, so the gain on a cluster is not known; there, `cephfit apply` needs "
            "--measured-elsewhere"
        )

    def commands(self, pool: str = "POOL") -> tuple[Command, ...]:
        """Return the commands for a cluster of which only the release is known, from the run."""
        from cephfit.ceph.delivery.shell_commands import commands_for

        version = version_of({} if self.run is None else self.run.facts)
        at_runtime = partial(acts_at_runtime, version=version)
        return commands_for(self.configuration, acts_at_runtime=at_runtime, pool=pool)


def of_sweep(name: str, sweep_text: str) -> Recommended:
    """Find a configuration in a sweep file.

    Raises:
        InputError: there is no such file or configuration, or the configuration has no settings.
    """
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep

    sweep = read_sweep(find_sweep(sweep_text))
    found = _called(name, sweep.configurations, where=f"sweep {sweep.name}")
    return Recommended(found, ("--sweep", sweep_text))


def of_store(name: str, location: str, run_id: str | None) -> Recommended:
    """Find a configuration of a run in a store, also one that an optimiser proposed.

    Raises:
        InputError: the location has no settings, or there is no such configuration.
        StoreError: there is no such store or run.
    """
    from cephfit.core.values.sample import TRIALS_DOCUMENT
    from cephfit.results.store.sample_store import Store
    from cephfit.results.tables.baseline_csv import is_store
    from cephfit.sweep.declaration.sweep_file import parse_sweep
    from cephfit.sweep.optimiser import trials_from_json, with_trials

    if not is_store(location):
        raise InputError(
            "a CSV file has rates, but no settings to apply",
            where=f"--baselines {location}",
            remedy="give the store of the run, or the sweep file with --sweep",
        )
    with Store.open(location) as store:
        run = store.run(run_id)
        trials = trials_from_json(store.document(run.run_id, TRIALS_DOCUMENT))
    sweep = with_trials(parse_sweep(run.sweep_text, file=run.run_id, stored=True), trials)
    found = _called(name, sweep.configurations, where=f"run {run.run_id}")
    return Recommended(found, ("--baselines", location, "--run", run.run_id), run)


def if_applicable(name: str | None, location: str, run_id: str | None) -> Recommended | None:
    """Find a recommended configuration; None for a CSV file, and for one without settings."""
    try:
        return None if name is None else of_store(name, location, run_id)
    except InputError:
        return None


def _called(name: str, configurations: Sequence[Configuration], *, where: str) -> Configuration:
    known = {c.name: c for c in configurations}
    if name not in known:
        raise InputError(f"there is no configuration {name!r}", where=where, remedy=nearest(name, known))
    if not known[name].settings:
        raise InputError(
            f"{name} has no settings: it is what the cluster has without cephfit",
            where=where,
            remedy="`cephfit restore --applied` undoes a configuration that was applied",
        )
    return known[name]


def version_of(facts: Mapping[str, Any]) -> str:
    """Return the release of Ceph that a run measured, such as ``16.2.15``; empty if unknown."""
    words = next(iter(facts.get("versions", {}).get("ceph", {}) or {}), "").split()
    return words[2] if len(words) > 2 else ""


def acts_at_runtime(key: str, *, version: str) -> bool:
    """Return whether running daemons act on a change of an option, by the releases' lists; False if unknown."""
    from cephfit.ceph.options.option_history import described

    found = described(key, version or _LATEST)
    return found is not None and found.acts_at_runtime


def require_same_cluster(found: Recommended, fsid: str, *, elsewhere: bool, where: str) -> str:
    """Check that a run measured the cluster that its configuration is applied to.

    Args:
        found: the configuration.
        fsid: of the cluster.
        elsewhere: whether the user accepts figures of another cluster.
        where: for messages.

    Returns:
        A warning; empty without one.

    Raises:
        InputError: it measured something else.
    """
    from cephfit.core.values.sample import CLUSTER

    run = found.run
    if run is None or run.facts.get(CLUSTER) == fsid:
        return ""
    what = f"run {run.run_id} measured {'a simulation' if run.is_simulated else f'another storage, {run.target}'}"
    if not elsewhere:
        raise InputError(
            f"{what}, and its recommendation may not hold for this cluster",
            where=where,
            remedy="measure here with `cephfit sweep run`, or add --measured-elsewhere",
        )
    return f"{what}; its gain may not be the gain here"


def echo_use(found: Recommended, echo: Callable[[str], None], *, all_commands: bool = False) -> None:
    """Print how to use a configuration: the command line of `cephfit apply`, commands, and their undo.

    Args:
        found: the configuration.
        echo: prints one line.
        all_commands: print every command and its undo; else only the first ones.
    """
    commands = found.commands()
    echo(f"To use {found.configuration.name}{' elsewhere' if found.is_simulated else ''}: {found.apply_line()}")
    if found.is_simulated:
        echo(f"  {found.simulated_note}")
    if all_commands:
        echo_commands(commands, echo)
        return
    for command in commands[:_SHOWN]:
        echo(f"  {_line(command.where, command.do)}")
    left = len(commands) - _SHOWN
    more = f"{left} more commands, and " if left > 0 else ""
    echo(f"  {more}how to undo it: `{found.apply_line('')}`")


def echo_commands(commands: Sequence[Command], echo: Callable[[str], None]) -> None:
    """Print commands in order, the values to note before, and the commands that undo them."""
    from cephfit.ceph.delivery.shell_commands import undo_lines

    looks = list(dict.fromkeys((c.where, c.look) for c in commands if c.look))
    for title, lines in (
        (
            "First note the present values, to set them again instead of `OLD_...` or `config rm`:",
            looks,
        ),
        ("Then:", [(c.where, c.do) for c in commands]),
        ("To undo it:", undo_lines(commands)),
    ):
        if lines:
            echo(title)
            for where, line in lines:
                echo(f"  {_line(where, line)}")


def _line(where: str, line: str) -> str:
    from cephfit.ceph.delivery.shell_commands import ANY_ADMIN

    return line if where == ANY_ADMIN else f"{line}   # {where}"

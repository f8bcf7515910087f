"""Entry point of the `cephfit` command."""

import errno
import importlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from cephfit import __version__
from cephfit.cli.options.config_file import choose
from cephfit.cli.output import TERMINATED, TerminatedError, refuse_repeated_options
from cephfit.core.errors import CephfitError, HostError

_SECTIONS = {
    "Start here": {
        "demo": ("cephfit.cli.demo", "The whole loop on this machine: lab, sweep, trace, map, verify, report."),
        "lab": (
            "cephfit.cli.cluster.lab_command",
            "A real one-machine Ceph, also with an OpenStack: up, status, stop, start, down.",
        ),
    },
    "Measure": {
        "sweep": ("cephfit.cli.sweep.sweep_commands", "Measure configurations: list, plan, run, status, effects."),
        "import": (
            "cephfit.cli.sweep.import_command",
            "Store results of benchmarks that were run without cephfit.",
        ),
        "shared-volume": (
            "cephfit.cli.sweep.shared_volume_command",
            "Measure one image that several clients use, with and without locks.",
        ),
    },
    "Workloads": {
        "trace": (
            "cephfit.cli.trace.trace_commands",
            "Workload traces: capture, workload, profile, show, plot, compare, convert, jobs, replay.",
        ),
        "survey": (
            "cephfit.cli.fleets.survey_command",
            "Show what all images of a cluster ask for, and which to trace.",
        ),
    },
    "Predict and decide": {
        "map": ("cephfit.cli.predict.map_command", "Predict every configuration for a workload profile."),
        "probe": (
            "cephfit.cli.check.probe_command",
            "Run a clone of the workload where the prediction is close.",
        ),
        "balance": ("cephfit.cli.predict.balance_command", "Find one configuration for several workloads."),
        "advise": ("cephfit.cli.predict.advise_command", "Advice in words for workloads on a network."),
        "place": ("cephfit.cli.fleets.place_command", "Recommend one of the measured pools for each workload."),
        "capacity": (
            "cephfit.cli.fleets.capacity_command",
            "Does a fleet fit, how many more VMs do, and when is a pool full.",
        ),
    },
    "Check predictions": {
        "verify": (
            "cephfit.cli.check.verify_command",
            "Run a real workload and compare it with the prediction.",
        ),
        "evaluate": ("cephfit.cli.check.evaluate_command", "Run several real workloads on every configuration."),
        "assess": (
            "cephfit.cli.check.assess_command",
            "Show how good predictions are, from workloads that were really run.",
        ),
    },
    "Results": {
        "runs": ("cephfit.cli.reports.runs_command", "The runs in a store: list, show, rm, export, merge."),
        "report": ("cephfit.cli.reports.report_command", "Write a report as HTML, Markdown or CSV."),
        "plot": ("cephfit.cli.reports.plot_command", "Draw the pictures of a report as PNG, SVG or PDF."),
        "compare": (
            "cephfit.cli.reports.compare_command",
            "Compare runs of one sweep on several targets or releases of Ceph.",
        ),
        "serve": ("cephfit.cli.serve_command", "A local web page: upload traces, get answers, watch sweeps."),
    },
    "Clusters and clouds": {
        "params": (
            "cephfit.cli.cluster.params_command",
            "Browse the options of a cluster and their risks: tree, search, show.",
        ),
        "pools": (
            "cephfit.cli.cluster.pools_command",
            "Pools placed on chosen devices: show, example, plan, apply, remove.",
        ),
        "apply": (
            "cephfit.cli.cluster.apply_command",
            "Apply a configuration to a cluster for good, or print its commands.",
        ),
        "restore": ("cephfit.cli.cluster.restore_command", "Undo all changes of cephfit to a target."),
        "cloud": (
            "cephfit.cli.cluster.cloud_command",
            "OpenStack: check a cloud, give images their volume types, list what runs own, delete it.",
        ),
        "image": (
            "cephfit.cli.cluster.image_command",
            "A small image for benchmark guests: build, upload, remove.",
        ),
    },
    "This program": {
        "config": ("cephfit.cli.cluster.config_command", "The configuration file and the environment: show."),
        "completion": ("cephfit.cli.options.completers", "Print the shell completion script."),
    },
}
"""The sections of the help: command to (module, help line). A module is imported when its command runs, so that
help stays fast."""
_COMMANDS = {name: entry for commands in _SECTIONS.values() for name, entry in commands.items()}

_REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose another place, or get permission"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free disk space and run the command again"),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP), "name another path"),
}
"""Errors of files that a user can fix, and how."""
_SHOWN = 120
"""Characters of a path in an error."""


_OUTPUT_CLOSED = 128 + 13
"""Exit code of a Unix program whose output was closed (by `head`): a shell's for SIGPIPE."""


class _OutputClosedError(Exception):
    """The reader of the output has closed it. This is not an error, and no message is shown."""


class _LazyGroup(click.Group):
    def make_context(self, *args: Any, **others: Any) -> click.Context:
        with _distinguish_broken_pipes():  # handles `--help`
            return super().make_context(*args, **others)

    def invoke(self, ctx: click.Context) -> Any:
        with _distinguish_broken_pipes():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        return refuse_repeated_options(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, (_, text) in commands.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="cephfit")
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    envvar="CEPHFIT_CONFIG",
    show_envvar=True,
    help="Configuration file to use.  [default: $XDG_CONFIG_HOME/cephfit/config.yaml]",
)
@click.pass_context
def cephfit(context: click.Context, config: Path | None) -> None:
    """Which Ceph configuration fits an OpenStack workload, by how much, and how sure that is.

    The loop: `sweep run` measures configurations, `trace profile` reads a workload, `map` predicts
    the best and the worst configuration for it, `verify` runs the real workload on them, `report` shows the
    results. Start with `cephfit demo`. On your own cluster (`--target ceph`) nothing is changed without `--apply`.

    Options of a cluster and the store can also come from CEPHFIT_* variables or a file: see `cephfit config`.

    Commands that print a result take --json. Exit code 2 means an error that you can fix; stderr says how.
    """
    choose(context, config)


@contextmanager
def _distinguish_broken_pipes() -> Iterator[None]:
    """Handle broken pipes before click does, which would exit with code 1 and no message.

    Raises:
        _OutputClosedError: standard output or error is closed.
        HostError: another pipe or connection is closed.
    """
    try:
        yield
    except BrokenPipeError as error:
        if _is_unread():
            raise _OutputClosedError from None
        raise HostError(
            "a program or service closed its connection to cephfit", remedy="run the command again"
        ) from error


def _is_unread() -> bool:
    ends = select.poll()
    for end in (1, 2):
        ends.register(end, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in ends.poll(0))


def _discard_output() -> None:
    """Discard output that is flushed at exit, so that the flush does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for end in (1, 2):
        os.dup2(nowhere, end)


def _open_standard_streams() -> None:
    """Open /dev/null for standard streams that the caller closed.

    Otherwise the next opened file would get the descriptor of a standard stream.
    """
    for end in (0, 1, 2):
        try:
            os.fstat(end)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is ``end``
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open(encoding="utf-8")
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Exit codes: 2 for an error that the user can fix, 130 after an interrupt, 141 if the output was closed, and 143
    if a sweep or a workload was terminated.
    """
    _open_standard_streams()
    if "_CEPHFIT_COMPLETE" in os.environ:
        _complete(arguments)
    try:
        status = _status_of(arguments)
    except (_OutputClosedError, BrokenPipeError):
        _discard_output()
        status = _OUTPUT_CLOSED
    sys.exit(status)


def _without_former_names(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error without hidden options among those that click suggests."""
    parameters = error.ctx.command.params if error.ctx else ()
    hidden = {name for p in parameters if isinstance(p, click.Option) and p.hidden for name in p.opts}
    suggested = [name for name in error.possibilities or () if name not in hidden]
    return click.NoSuchOption(error.option_name, error.message, suggested, error.ctx)


def _complete(arguments: Sequence[str] | None) -> None:
    """Print completions for a shell; any failure is silent.

    Raises:
        SystemExit: always.
    """
    from cephfit.cli.options.completers import register_bash_completion

    register_bash_completion()
    try:
        cephfit.main(args=arguments, prog_name="cephfit")
    except Exception:
        sys.exit(1)


def _status_of(arguments: Sequence[str] | None) -> int:
    try:
        status = cephfit.main(args=arguments, prog_name="cephfit", standalone_mode=False)
    except CephfitError as error:
        click.echo(f"cephfit: {error}", err=True)
        return 2
    except click.ClickException as error:
        (_without_former_names(error) if isinstance(error, click.NoSuchOption) else error).show()
        return 2
    except (click.Abort, KeyboardInterrupt) as error:
        terminated = any(isinstance(e, TerminatedError) for e in (error, error.__context__))
        how = "terminated" if terminated else "interrupted"
        click.echo(f"cephfit: {how}; all completed samples are kept", err=True)
        return TERMINATED if terminated else 130
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        place = str(error.filename or "the output")
        short = place if len(place) <= _SHOWN else f"{place[:_SHOWN]}..."
        click.echo(f"cephfit: {short}: {error.strerror}\n  {_REMEDIES[error.errno]}", err=True)
        return 2
    except UnicodeEncodeError as error:
        if error.reason != "surrogates not allowed":
            raise
        shown = str(error.object)[max(error.start - _SHOWN // 2, 0) : error.start + _SHOWN // 2]
        click.echo(f"cephfit: {shown!a}: this text is not UTF-8\n  use names in UTF-8", err=True)
        return 2
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    main()

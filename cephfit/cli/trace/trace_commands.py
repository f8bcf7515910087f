"""`cephfit trace`: read workload traces, and capture them."""

import click

from cephfit.cli.terminal.command_groups import SentenceGroup
from cephfit.cli.trace import (
    trace_capture,
    trace_compare,
    trace_convert,
    trace_jobs,
    trace_plot,
    trace_profile,
    trace_replay,
    trace_show,
    trace_workload,
)
from cephfit.core.slow_compilation import announce_slow_compilation


@click.group("trace", cls=SentenceGroup)
def command() -> None:
    """Workload traces: capture, profile, show, plot, compare, convert, jobs, replay, workload."""
    announce_slow_compilation(
        lambda: click.echo(
            "compiling the loops that read traces; this takes up to half a minute, only once",
            err=True,
        )
    )


for _module in (
    trace_capture,
    trace_profile,
    trace_show,
    trace_plot,
    trace_compare,
    trace_convert,
    trace_jobs,
    trace_replay,
    trace_workload,
):
    command.add_command(_module.command)

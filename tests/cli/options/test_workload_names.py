"""Names of ready workloads on the command line."""

import os
from pathlib import Path

import click
import pytest

from cephfit.cli.options.workload_choice import verified_workload_option, workload_option
from cephfit.lab.workloads import ready_programs
from cephfit.lab.workloads.program_workload import ProgramWorkload

NAMED = {"postmark", "dbench", "file-server", "mail", "compile", "key-value", "pgbench-small"}


@click.command()
@workload_option
def one(workload: str) -> None:
    click.echo(workload)


@click.command()
@verified_workload_option
def verified(workload: str | None) -> None:
    click.echo(workload)


@pytest.mark.usefixtures("programs_of_workloads")
def test_every_ready_program_describes_itself_by_its_name() -> None:
    ready = ready_programs()
    assert ready.keys() >= NAMED
    assert {name: ProgramWorkload(path).name for name, path in ready.items()} == {name: name for name in ready}


@pytest.mark.parametrize("command", [one, verified])
def test_a_name_stands_for_its_program(command: click.Command, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--workload", "mail"], standalone_mode=False)
    kind, _, path = capsys.readouterr().out.strip().partition(":")
    assert kind == "program"
    assert Path(path).name == "mail"
    assert os.access(path, os.X_OK)


def test_pgbench_and_own_programs_are_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("pgbench", "program:./mail"):
        one.main(["--workload", text], standalone_mode=False)
        assert capsys.readouterr().out.strip() == text


def test_another_name_is_refused_with_the_ready_ones() -> None:
    with pytest.raises(click.BadParameter, match=r"ready workload .*postmark"):
        one.main(["--workload", "mial"], standalone_mode=False)

"""An option of one value that is given twice is an error in every command."""

import importlib
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from cephfit.cli.main import _COMMANDS, cephfit


def said(*arguments: str) -> str:
    result = CliRunner().invoke(cephfit, arguments)
    assert result.exit_code != 0
    return f"{result.output}{result.exception}"


def test_both_values_are_named() -> None:
    text = said("sweep", "status", "--store", "june.sqlite", "--store", "july.sqlite")
    assert "--store is given twice, as 'june.sqlite' and as 'july.sqlite': give it once" in text


def test_a_short_and_a_long_name_are_one_option() -> None:
    assert "--output is given twice, as 'a.html' and as 'b.html'" in said(
        "report", "-o", "a.html", "--output=b.html"
    )


def test_a_password_in_a_value_is_not_repeated() -> None:
    text = said(
        "compare", "--store", "postgresql://me:hunter2@db/x", "--store", "postgresql://db/x?password=hunter2"
    )
    assert "postgresql://me:***@db/x" in text and "hunter2" not in text


def test_the_same_value_twice_loses_nothing() -> None:
    text = said("sweep", "status", "--store", "none.sqlite", "--store", "none.sqlite")
    assert "given twice" not in text


def commands_of(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, *names, name)
        else:
            yield (*names, name), command


def every_single_option() -> Iterator[tuple[tuple[str, ...], str]]:
    for name, (module, _) in _COMMANDS.items():
        command = importlib.import_module(module).command
        found = commands_of(command, name) if isinstance(command, click.Group) else [((name,), command)]
        for path, one in found:
            for option in one.params:
                if isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count):
                    yield path, option.opts[0]


def test_every_command_refuses_it() -> None:
    options = list(every_single_option())
    assert len(options) > 100
    silent = [(*path, name) for path, name in options if "given twice" not in said(*path, name, "1", name, "2")]
    assert not silent


@pytest.mark.parametrize("options", [("--run", "a", "--run", "b"), ("--profile", "a", "--profile", "b")])
def test_options_that_collect_values_still_do(options: tuple[str, ...]) -> None:
    assert "given twice" not in said("compare", "--store", "none.sqlite", *options)

"""Tables fit into the terminal: long texts are wrapped, numbers are not."""

import os
import pty
import subprocess
import sys
import termios

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cephfit.cli.output import print_table, table_text

HEADERS = ("configuration", "relative", "why")
ROWS = [
    ("A", "100.0", "Ceph's defaults on the lab: two copies on the hdd class"),
    ("no-deferred", "114.4", "small writes go straight to their place instead of through the write-ahead log"),
]


def lines_of(rows: list[tuple[str, str, str]], width: int | None = None) -> list[str]:
    return table_text(HEADERS, rows, right=(1,), width=width).split("\n")


def test_columns_are_as_wide_as_their_content_and_figures_are_aligned_right() -> None:
    assert lines_of(ROWS) == [
        "configuration  relative  why",
        "A                 100.0  Ceph's defaults on the lab: two copies on the hdd class",
        "no-deferred       114.4  small writes go straight to their place instead of through the write-ahead log",
    ]
    assert lines_of(ROWS, width=200) == lines_of(ROWS)


def test_the_longest_text_is_wrapped() -> None:
    assert lines_of(ROWS, width=60) == [
        "configuration  relative  why",
        "A                 100.0  Ceph's defaults on the lab: two",
        "                         copies on the hdd class",
        "no-deferred       114.4  small writes go straight to their",
        "                         place instead of through the",
        "                         write-ahead log",
    ]


def test_the_name_of_an_option_stays_whole_in_a_narrow_column() -> None:
    option = "bluestore_prefer_deferred_size_hdd"
    (*_, last) = lines_of([("A", "1", f"writes of up to 32 KiB with {option} = 0")], width=64)
    assert last.strip() == f"{option} = 0"


def test_a_table_that_cannot_fit_is_not_wrapped() -> None:
    assert lines_of(ROWS, width=20) == lines_of(ROWS)


def test_markup_is_printed_unchanged() -> None:
    names = ("[red]fast[/red]", ":smile:", r"\[bold]", "[/]")
    for name, line in zip(names, lines_of([(name, "1", "x") for name in names])[1:], strict=True):
        assert line.split() == [name, "1", "x"]


def test_wide_characters_take_two_columns() -> None:
    first, *rest = lines_of([("高速", "1", "x"), ("A", "1", "x"), ("e\u0301", "1", "x")])
    assert {cell_len(line) for line in rest} == {cell_len(first) - len("why") + len("x")}


def test_an_indented_cell_stays_indented_on_each_of_its_lines() -> None:
    row = ("  one of many configurations", "1", "x" * 20)
    assert [line[:16].rstrip() for line in lines_of([row], width=50)[1:]] == [
        "  one of many",
        "  configurations",
    ]


def test_empty_cells_and_a_table_without_rows() -> None:
    assert lines_of([]) == ["configuration  relative  why"]
    assert table_text(("name", ""), [("A", ""), ("", "")]) == "name\nA\n"


def test_a_pipe_gets_one_line_for_each_row_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    rows = [(f"c{number}", str(number), "word " * 99 + "end") for number in range(3)]

    @click.command()
    def command() -> None:
        print_table(HEADERS, rows, right=(1,))

    printed = CliRunner().invoke(command, catch_exceptions=False).output.splitlines()
    assert [line.split() for line in printed] == [list(HEADERS), *(" ".join(row).split() for row in rows)]


@given(
    st.lists(st.tuples(st.text("ab ", max_size=30), st.text("12", max_size=9), st.text("ab ,高", max_size=99))),
    st.one_of(st.none(), st.integers(20, 120)),
)
def test_no_letter_is_lost_at_any_width(rows: list[tuple[str, str, str]], width: int | None) -> None:
    def letters(text: str) -> list[str]:
        return sorted("".join(text.split()))

    lines = lines_of(rows, width)
    assert letters("".join(lines)) == letters("".join(map("".join, (HEADERS, *rows))))
    if width is None:
        assert len(lines) == 1 + len(rows)


def test_a_terminal_of_80_columns_shows_the_plan_of_a_sweep_without_breaking_lines() -> None:
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "cephfit.cli.main", "sweep", "plan", "quick"]
    with subprocess.Popen(command, stdout=child, env=environment) as process:
        os.close(child)
        said = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:  # on Linux, the other end is closed
                break
            if not part:
                break
            said += part
    os.close(parent)
    assert process.returncode == 0
    table = said.decode().split("\r\n\r\n")[1].splitlines()
    assert table[0].split() == ["configuration", "sets", "why"]
    assert max(map(len, table)) <= 80

"""Tables fit into the terminal: long texts go over several lines, figures stay whole."""

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cephfit.cli.folding import fold

HEADERS = ("configuration", "relative", "why")
ROWS = [
    ("A", "100.0", "Ceph's defaults on the lab: two copies on the hdd class"),
    ("no-deferred", "114.4", "small writes go straight to their place instead of through the write-ahead log"),
]


def folded(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[list[str]]]:
    return fold(headers, rows, width=width, gap=2, right=(1,))


def longest(table: list[list[list[str]]]) -> int:
    widths = [max(len(line) for row in table for line in row[i]) for i in range(len(table[0]))]
    return sum(widths) + 2 * (len(widths) - 1)


def test_a_table_that_fits_is_left_as_it_is() -> None:
    assert folded(HEADERS, ROWS, 200) == [[[cell] for cell in row] for row in (HEADERS, *ROWS)]


def test_the_longest_text_goes_over_several_lines() -> None:
    table = folded(HEADERS, ROWS, 60)
    assert longest(table) <= 60
    assert table[2][0] == ["no-deferred"], "short columns are not touched"
    assert " ".join(table[2][2]) == ROWS[1][2], "no word is lost"


def test_a_table_that_cannot_fit_is_left_to_the_terminal() -> None:
    assert folded(HEADERS, ROWS, 20) == folded(HEADERS, ROWS, 200)


@given(
    st.lists(st.tuples(st.text("ab ", max_size=30), st.text("12", max_size=9), st.text("ab ,", max_size=99))),
    st.integers(20, 120),
)
def test_figures_stay_whole_and_no_letter_is_lost(rows: list[tuple[str, str, str]], width: int) -> None:
    table = folded(HEADERS, rows, width)
    for row, cells in zip((HEADERS, *rows), table, strict=True):
        assert cells[1] == [row[1]]
        assert ["".join("".join(lines).split()) for lines in cells] == ["".join(cell.split()) for cell in row]


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
            except OSError:  # Linux says so when nobody holds the other end any more
                break
            if not part:
                break
            said += part
    os.close(parent)
    assert process.returncode == 0
    table = said.decode().split("\r\n\r\n")[1].splitlines()
    assert table[0].split() == ["configuration", "sets", "why"]
    assert max(map(len, table)) <= 80

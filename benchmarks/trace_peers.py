"""Text formats as other libraries read their columns: what a line is like, and the calls.

``trace_speed.py`` runs it as ``PYTHON benchmarks/trace_peers.py PEER FILE NAME``. It needs nothing of cephfit, so
PYTHON can be any that has the library; it prints the seconds of processor time and on the wall.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from readings import best, spent_by

BLKPARSE_LINE = "  8,0    0 {i:8d} {seconds:>15s}    99  Q {op:>3s} {lbn} + {n_sectors} [fio]\n"
PERF_LINE = (
    "  fio  6012 [001] {seconds:>15s}: block:block_rq_issue: 8,0 {op} {nbytes} () {lbn} + {n_sectors} [fio]\n"
)


@dataclass(frozen=True, slots=True)
class Lines:
    """A text format.

    Attributes:
        line, ops: as ``trace_files.write_lines`` takes them.
        separator: for pandas, as a regular expression; pyarrow knows single characters only.
        numbers, words: columns that a profile needs; none: pandas cannot read such lines.
        columns: of cephfit's ``--columns``, if it is given.
    """

    line: str
    ops: tuple[str, str]
    separator: str = ","
    numbers: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    columns: str = ""


LINES = {
    "vscsi-csv": Lines("{i},{nbytes},1,{op},{lbn},{time_us}\n", ("read", "write"), ",", (1, 4, 5), (3,)),
    "msr": Lines(
        "{filetime},usr,{disk},{op},{offset},{nbytes},{latency}\n", ("Read", "Write"), ",", (0, 2, 4, 5, 6), (1, 3)
    ),
    "alibaba": Lines("{disk},{op},{offset},{nbytes},{time_us}\n", ("R", "W"), ",", (0, 2, 3, 4), (1,)),
    "blkparse-text": Lines(BLKPARSE_LINE, ("R", "W"), r"\s+", (7, 9), (0, 3, 5, 6)),
    "columns": Lines(
        "{seconds}\t{op}\t{lbn}\t{n_sectors}\n",
        ("rd", "wr"),
        "\t",
        (2, 3),
        (1,),
        "time:s,op,offset:lbn,length:lbn,sep=tab",
    ),
    "block-events": Lines(PERF_LINE, ("R", "W")),
}


def with_pandas(path: Path, lines: Lines) -> list[Callable[[], object]]:
    """Its C engine, in the two ways of which now one and now the other is faster."""
    import pandas

    columns = [*lines.numbers, *lines.words]

    def read(low_memory: bool, words: str | None) -> object:
        types = dict.fromkeys(lines.numbers, "int64") | (dict.fromkeys(lines.words, words) if words else {})
        return pandas.read_csv(
            path,
            sep=lines.separator,
            header=None,
            usecols=columns if lines.columns == "" else None,
            dtype=types,
            engine="c",
            low_memory=low_memory,
            skipinitialspace=True,
        )

    return [lambda: read(True, None), lambda: read(False, "category")]


def with_plain_pandas(path: Path, lines: Lines) -> list[Callable[[], object]]:
    """The call that most people write: without types, which it infers."""
    import pandas

    columns = sorted((*lines.numbers, *lines.words)) if lines.columns == "" else None
    return [lambda: pandas.read_csv(path, sep=lines.separator, header=None, usecols=columns)]


def with_pyarrow(path: Path, lines: Lines) -> list[Callable[[], object]]:
    """Its own reader, which uses all cores."""
    from pyarrow import csv

    columns = [f"f{i}" for i in sorted((*lines.numbers, *lines.words))]
    return [
        lambda: csv.read_csv(
            path,
            csv.ReadOptions(autogenerate_column_names=True),
            csv.ParseOptions(delimiter=lines.separator),
            csv.ConvertOptions(include_columns=columns if lines.columns == "" else None),
        )
    ]


PEERS = {
    "pandas": ("pandas, typed", with_pandas),
    "plain-pandas": ("pandas as called by most", with_plain_pandas),
    "pyarrow": ("pyarrow", with_pyarrow),
}
"""Libraries that read columns, how they are shown, and in which ways they read."""


def version_of(python: Path) -> str:
    """The version of its pandas.

    Raises:
        SystemExit: it has none.
    """
    asked = [str(python), "-c", "import pandas; print(pandas.__version__)"]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"{python}: {(done.stderr.splitlines() or ['it said nothing'])[-1]}")
    return done.stdout.strip()


def main() -> None:
    peer, path, name = sys.argv[1:]
    spent = best(spent_by(read) for read in PEERS[peer][1](Path(path), LINES[name]))
    print(spent.processor, spent.wall)


if __name__ == "__main__":
    main()

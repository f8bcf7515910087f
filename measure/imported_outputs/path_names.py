"""What the names of a file and its folders say about a benchmark: configuration, client, repeat, kind of access.

Folders that name a kind of access or a number do not name a configuration: ``4k``, ``randread``, ``run-3``,
``iodepth-032``. The nearest other folder does. The layouts that this covers:

- fio-plot: ``FOLDER/randread-32-8.json`` (pattern, iodepth, numjobs); bench-fio since version 1.0:
  ``OUTPUT/DEVICE/4k/randread-32-8.json``, mixes below ``randrw75/``, runs below ``run-N`` (``supporting.py``).
- cbt: ``ARCHIVE/results/00000000/id-1a2b3c4d/.../output.0.HOST``: ``ARCHIVE`` is the configuration, the first
  number the iteration, ``output.N.HOST`` one process of a host (``benchmark.py``, ``radosbench.py``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from cephfit.core.errors import InputError
from cephfit.core.units import parse_nbytes
from cephfit.core.values.cells import Pattern
from cephfit.measure.imported_outputs.output_reader import FileHints

_KIND = re.compile(
    r"\d+(\.\d+)?[kmg]?i?b?|(rand)?(read|write|rw|readwrite)[_-]?\d*|seq|rand|run-\d+|json|results|id-[0-9a-f]{8}"
    r"|(op_size|iodepth|numjobs|concurrent_procs|concurrent_ops|osd_ra|client_ra|raw_ra)-\d+",
    re.IGNORECASE,
)
"""Names of folders that say how something was measured, instead of on what."""
_CBT_ITERATION = re.compile(r"\d{8}")
_CBT_ID = re.compile(r"id-[0-9a-f]{8}")
_CBT_OUTPUT = re.compile(r"(?:json_)?output\.(?P<number>\d+)(?:\.(?P<host>.+))?")
_NUMBERED = re.compile(r"(?P<word>op_size|iodepth|concurrent_ops)-0*(?P<n>\d+)")
_WORDS = re.compile(r"[^A-Za-z0-9]+")
_PATTERNS = {**{pattern.value: pattern for pattern in Pattern}, "seq": Pattern.READ, "rand": Pattern.RANDREAD}


@dataclass(frozen=True, slots=True)
class PathNames:
    """What names say.

    Attributes:
        configuration: never empty.
        client: empty if the names do not say.
        repeat: None likewise.
        hints: on the kind of access.
    """

    configuration: str
    client: str
    repeat: int | None
    hints: FileHints


def names_of_path(path: PurePath) -> PathNames:
    """Return what the names of a file and its folders say; ``path`` is absolute."""
    folders = path.parts[1:-1]
    is_cbt = [i for i, name in enumerate(folders) if i and _CBT_ID.fullmatch(name)]
    repeat = None
    if is_cbt and _CBT_ITERATION.fullmatch(folders[is_cbt[-1] - 1]):
        repeat = int(folders[is_cbt[-1] - 1])
    output = _CBT_OUTPUT.fullmatch(path.name)
    client = ""
    if output is not None:
        client = f"{output['host'] or 'client'}.{output['number']}"
    own = [name for name in folders if not _KIND.fullmatch(name)]
    return PathNames(own[-1] if own else path.stem, client, repeat, _hints(path, folders))


def duplicate_of(path: PurePath, siblings: Sequence[str]) -> str:
    """Return the file in the same folder that has the same run, as cbt's ``json_output.N``; empty if none has."""
    other = path.name.removeprefix("json_")
    return other if path.name.startswith("json_output.") and other in siblings else ""


def _hints(path: PurePath, folders: Sequence[str]) -> FileHints:
    """Return the kind of access that the file's name says, else that of the nearest folder."""
    pattern: Pattern | None = None
    for name in (path.stem, *reversed(folders)):
        found = {_PATTERNS[word] for word in _WORDS.split(name.lower()) if word in _PATTERNS}
        if len(found) == 1:
            pattern = found.pop()
            break
    numbers = {m["word"]: int(m["n"]) for name in folders if (m := _NUMBERED.fullmatch(name))}
    return FileHints(
        pattern,
        numbers.get("op_size", 0) or _size_of(path, folders),
        numbers.get("iodepth") or numbers.get("concurrent_ops") or 0,
    )


_SIZE = re.compile(r"\d+(\.\d+)?[kmg]i?b?", re.IGNORECASE)


def _size_of(path: PurePath, folders: Sequence[str]) -> int:
    for name in (path.stem, *reversed(folders)):
        for word in _WORDS.split(name):
            if _SIZE.fullmatch(word):
                try:
                    return parse_nbytes(word)
                except InputError:
                    continue
    return 0

"""Loops over every access, compiled by Numba.

Compared with passes of NumPy over the same columns, they process about 170 million accesses per second and core
instead of 10 million, because they touch each access once.

A loop is compiled when it first runs, and cached on disk. Numba's cache checks only the file of the loop. It would
keep using a loop after a change to an inlined function or a constant in another file. So the cache folder is named
after a hash of all files that the loop's file imports.

Compiling takes long once per machine and version. A command registers a message for that.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import event
from platformdirs import user_cache_path

import cephfit

ZERO: int = cast(int, np.int64(0))
"""For Numba no literal 0, for which it would compile a function that takes numbers once more."""

SLOW_SECONDS = 1.0
"""No message is shown while the total compilation time is below this."""

_announcers: list[Callable[[], None]] = []


def announce_slow_compilation(say: Callable[[], None]) -> None:
    """Register ``say``: called at most once, from another thread, when compiling exceeds ``SLOW_SECONDS``."""
    _announcers[:] = [say]


class CompilationClock:
    """Measures the total time of compilation; nested and concurrent compilations count once."""

    def __init__(self, limit_seconds: float = SLOW_SECONDS) -> None:
        self._left = limit_seconds
        self._depth = 0
        self._begun = 0.0
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1 and _announcers:
                self._begun = time.monotonic()
                self._timer = threading.Timer(max(0.0, self._left), _announce)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._left -= time.monotonic() - self._begun


def _announce() -> None:
    while _announcers:
        _announcers.pop()()


_IMPORT = re.compile(r"^from (cephfit[\w.]*) import (?:\(([^)]*)\)|(.*))", re.M)
_CONFIG: Any = numba.config  # its type stubs lack its attributes
_EVENTS: Any = event  # its functions are untyped

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Compilations(event.Listener):
    """Numba reports what it compiles, but not what it loads from the cache."""

    def __init__(self) -> None:
        self._clock = CompilationClock()

    def on_start(self, event: Any) -> None:
        self._clock.start()

    def on_end(self, event: Any) -> None:
        self._clock.end()


_EVENTS.register("numba:compile", _Compilations())


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function, which must be plain arithmetic on numbers and NumPy arrays."""
    return _compiled(function)


def compiled_in_place(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a loop that creates no arrays, not even slices, and returns none.

    Numba then omits reference counting for the arguments. For a function called once per access, that counting
    costs more than its work: 21 ns for each event of a trace became 12.
    """
    return _compiled(function, _nrt=False)


def _compiled(function: Callable[_P, _R], **options: bool) -> Callable[_P, _R]:
    njit: Any = numba.njit  # its type stubs lack the option _nrt
    try:
        with _cached_as(version_of(Path(function.__code__.co_filename))):
            return cast(Callable[_P, _R], njit(cache=True, nogil=True, **options)(function))
    except (OSError, RuntimeError):  # no source file, or no writable cache: compile in every process
        return cast(Callable[_P, _R], njit(nogil=True, **options)(function))


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Inline a function into the loops that call it.

    For a function called once per access, passing arrays costs more than its work.
    """
    return cast(Callable[_P, _R], numba.njit(nogil=True, inline="always")(function))


def version_of(file: Path) -> str:
    """Return a hash over a file and all of cephfit that it imports, from their sizes and times."""
    digest = sha256()
    for one in sorted(_with_imports(file)):
        found = one.stat()
        digest.update(f"{one}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:16]


def _with_imports(file: Path) -> set[Path]:
    seen, ahead = set[Path](), [file]
    while ahead:
        one = ahead.pop()
        if one not in seen:
            seen.add(one)
            ahead += _imported(one)
    return seen


@cache
def _imported(file: Path) -> tuple[Path, ...]:
    """Return the files of cephfit that a file imports. Extra words in the match do no harm."""
    found = []
    for module, several, words in _IMPORT.findall(file.read_text("utf-8")):
        found += [module, *(f"{module}.{word}" for word in re.findall(r"\w+", several or words))]
    return tuple(path for name in found if (path := _file_of(name)).is_file())


def _file_of(module: str) -> Path:
    """Return the path of a module: in this package, which may be installed elsewhere, or in the rest of it."""
    parts = module.split(".")[1:]
    if parts[:1] == ["traces"]:
        return Path(__file__).parent.joinpath(*parts[1:]).with_suffix(".py")
    return Path(cephfit.__file__).parent.joinpath(*parts).with_suffix(".py")


@cache
def _home() -> Path:
    """Return the cache folder: next to the code, or where this user may write."""
    next_to_code = Path(__file__).parent / "__pycache__"
    if _CONFIG.CACHE_DIR:
        return Path(_CONFIG.CACHE_DIR)
    if os.access(next_to_code if next_to_code.exists() else next_to_code.parent, os.W_OK):
        return next_to_code
    return user_cache_path("cephfit")


@contextmanager
def _cached_as(version: str) -> Iterator[None]:
    home, before = _home(), _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(home / f"loops-{version}")
    try:
        yield
    finally:
        _CONFIG.CACHE_DIR = before

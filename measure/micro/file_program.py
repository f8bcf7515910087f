"""Operations on the files of one client: ``python -m cephfit.measure.micro.file_program REQUEST``.

The process has a mount namespace of its own, so that the kernel unmounts the client's volume when it ends, also
after a kill. REQUEST is JSON: see ``FileRequest``. A run writes a line when it is ready, waits for a line, and
writes its figures, or the reason of a failure. It ends when its input does.
"""

import ctypes
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

from cephfit.core.values.cells import FileOperation, FileSet
from cephfit.measure.micro.file_access import FileAccess, LocalFiles, NfsFileAccess, NfsSession
from cephfit.measure.micro.file_places import MOUNTED, NFS, S3, VOLUME, FilePlace, disk_below, traffic_of
from cephfit.measure.micro.file_work import Done, Work, ensure, timed, walk

PREPARE, WARM, RUN = "prepare", "warm", "run"
READY = {"ready": True}
_ROOT = Path("/mnt")
"""Where the volume is mounted, seen only in this process's mount namespace."""
_MARK = ".cephfit"
"""File on a file system that this program made."""
_MKFS = {
    # Tables that the kernel writes later in the background would disturb the runs.
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
_OPTIONS = {"ext4": "noatime", "xfs": "noatime,nouuid"}
_PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_PR_SET_PDEATHSIG = 1
_OPENING_SECONDS = 120.0
_ENDING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What the program does.

    Attributes:
        step: ``prepare``, ``warm`` or ``run``.
        place: of the files.
        files: that exist before each run.
        operation, nbytes, n_threads, seconds, every, direct, seed: see ``file_work.Work``; of a run.
        warm: read everything before the run begins.
    """

    step: str
    place: FilePlace
    files: FileSet
    operation: str = FileOperation.STAT.value
    nbytes: int = 0
    n_threads: int = 1
    seconds: float = 1.0
    every: int = 0
    direct: bool = False
    seed: int = 1
    warm: bool = False

    def to_text(self) -> str:
        document = asdict(self)
        del document["place"]["secrets"]  # they are in the environment
        return json.dumps(document)

    @classmethod
    def of_text(cls, text: str) -> "FileRequest":
        document = json.loads(text)
        place = FilePlace(**{**document["place"], "enter": tuple(document["place"]["enter"])})
        return cls(**{**document, "place": place, "files": FileSet(**document["files"])})

    def work(self, thread: int) -> Work:
        """What one thread does."""
        return Work(
            *(FileOperation(self.operation), self.nbytes, self.files, thread, self.n_threads, self.seconds),
            *(self.every, self.direct, self.seed),
        )


def access_of(place: FilePlace) -> FileAccess:
    """Return the access to a place; a volume is mounted.

    Raises:
        OSError: it cannot be reached.
    """
    if place.kind == NFS:
        session = NfsSession(place.host, place.path)
        files: FileAccess = NfsFileAccess(session, place.folder)
    else:
        files = LocalFiles(_ROOT / place.folder if place.kind in MOUNTED else Path(place.path))
    if place.kind in (NFS, S3):
        files.make_folder("")
    return files


@contextmanager
def mounted(request: FileRequest) -> Iterator[None]:
    """Mount a volume or bucket within the block; make a file system on a volume that has none of this program.

    Raises:
        OSError: it cannot be mounted.
    """
    if request.place.kind == S3:
        with _gateway(request.place):
            yield
        return
    if request.place.kind != VOLUME:
        yield
        return
    kind = request.files.filesystem
    with _device(request.place) as device:
        if not _mount_own(device, kind):
            if request.step != PREPARE:
                raise OSError(f"{device} has no files of this program")
            _call(*_MKFS[kind], device)
            _mount(device, kind)
            (_ROOT / _MARK).touch()
    try:
        yield
    finally:
        _call("umount", str(_ROOT))


@contextmanager
def _gateway(place: FilePlace) -> Iterator[None]:
    """Mount a bucket within the block: s3fs sends each file as a whole when it is closed or flushed.

    Multipart uploads would leave segments in another container of Swift.
    """
    options = (f"url=http://{place.host}", "use_path_request_style", "nomultipart", "nonempty")
    argv = ["s3fs", place.path, str(_ROOT), "-f", *(word for option in options for word in ("-o", option))]
    with tempfile.TemporaryFile() as messages:
        gateway = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=messages,
        )
        until = time.monotonic() + _OPENING_SECONDS
        while not _is_served(_ROOT):
            if gateway.poll() is not None or time.monotonic() > until:
                gateway.kill()
                messages.seek(0)
                lines = messages.read().decode(errors="replace").splitlines()
                why = [line for line in lines if line.strip() and "[INF]" not in line]
                raise OSError(f"s3fs cannot mount {place.path}: {(why or ['no answer'])[-1].strip()}")
            time.sleep(0.01)
    try:
        yield
    finally:
        _call("umount", str(_ROOT))
        gateway.wait()


def _is_served(root: Path) -> bool:
    """Return whether a file system is mounted and answers: s3fs mounts before it asks the server."""
    try:
        if root.is_mount():
            next(root.iterdir(), None)
            return True
    except OSError:
        pass
    return False


def _mount(device: str, kind: str) -> None:
    _call("mount", "-t", kind, "-o", _OPTIONS[kind], device, str(_ROOT))


def _mount_own(device: str, kind: str) -> bool:
    """Mount a file system that this program made; return False, with nothing mounted, if there is none."""
    try:
        _mount(device, kind)
    except OSError:
        return False
    if (_ROOT / _MARK).exists():
        return True
    _call("umount", str(_ROOT))
    return False


@contextmanager
def _device(place: FilePlace) -> Iterator[str]:
    """Attach a volume within the block; a mounted loop device stays until it is unmounted, also after a kill."""
    if not place.offset and place.path.startswith("/dev/"):
        yield place.path
        return
    loop = _call(
        *("losetup", "--find", "--show", "--direct-io=on", "--offset", str(place.offset)),
        *("--sizelimit", str(place.nbytes), place.path),
    ).strip()
    with Path(loop).open("rb"):
        _call("losetup", "--detach", loop)  # when nothing has it open any more
        yield loop


def _call(*argv: str) -> str:
    """Run a program and return its output.

    Raises:
        OSError: it is missing, or failed.
    """
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        message = (ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"])[-1]
        raise OSError(f"{argv[0]}: {message}")
    return ended.stdout


def _run(request: FileRequest, access: FileAccess) -> dict[str, Any]:
    """Do the operations in one process per thread; return the figures of all."""
    if request.warm:
        walk(access, request.files)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(request.n_threads + 1)
    threads: list[tuple[BaseProcess, Connection]] = []
    before: dict[str, int] = {}
    try:
        for number in range(request.n_threads):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (request, number, barrier, theirs, os.getpid())
            process: BaseProcess = context.Process(target=_thread, args=arguments)
            process.start()
            theirs.close()
            threads.append((process, ours))
        with suppress(BrokenBarrierError):  # a thread has failed, and says why
            barrier.wait(_OPENING_SECONDS)
            _print_document(READY)
            if not sys.stdin.readline():
                raise OSError("the run was cancelled")
            before = _of_volume(request.place)
            barrier.wait(_OPENING_SECONDS)
        answers = [end.recv() for _, end in threads]
    except EOFError:
        raise OSError("a thread ended without a result") from None
    finally:
        for process, _ in threads:
            process.join(_ENDING_SECONDS)
            process.kill()
            process.join()
    if failures := [answer for answer in answers if isinstance(answer, str)]:
        raise OSError(next((why for why in failures if why), "the threads did not begin in time"))
    access.flush_all()
    after = _of_volume(request.place)
    return {**figures(answers), "volume": {op: after[op] - before[op] for op in after}}


def _of_volume(place: FilePlace) -> dict[str, int]:
    """Return the bytes that the mounted volume has read and written; empty where none is mounted."""
    if place.kind != VOLUME:
        return {}
    device = disk_below(_ROOT)
    moved = traffic_of(device, None)
    return {"read_nbytes": moved.disk_read_nbytes or 0, "written_nbytes": moved.disk_written_nbytes or 0}


def _thread(request: FileRequest, number: int, barrier: Barrier, end: Connection, parent: int) -> None:
    """Do the operations of one thread, and send its ``Done``, or why it failed: empty if another one did."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    answer: Done | str

    def until() -> None:
        barrier.wait()
        barrier.wait()

    try:
        # A connection belongs to one process.
        answer = timed(access_of(request.place), request.work(number), until)
    except BrokenBarrierError:
        answer = ""
    except OSError as error:
        barrier.abort()
        answer = str(error)
    end.send(answer)


def figures(done: Sequence[Done]) -> dict[str, Any]:
    """Return the figures of all threads together. JSON values only; times in ns."""
    latencies = sorted(chain.from_iterable(one.latencies_ns for one in done))
    flushes = list(chain.from_iterable(one.flush_ns for one in done))
    n = len(latencies)
    return {
        "n": n,
        "nbytes": sum(one.nbytes for one in done),
        "elapsed_ns": max(one.end_ns for one in done) - min(one.begin_ns for one in done),
        "latency_mean_ns": sum(latencies) / n if n else 0.0,
        "percentiles_ns": {str(p): latencies[min(n - 1, int(n * p / 100))] for p in _PERCENTILES} if n else {},
        "flushes": len(flushes),
        "flush_mean_ns": sum(flushes) / len(flushes) if flushes else 0.0,
    }


def _print_document(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def main() -> None:
    request = FileRequest.of_text(sys.argv[1])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        with mounted(request):
            access = access_of(request.place)
            if request.step == PREPARE:
                _print_document({"result": {"written": ensure(access, request.files)}})
            elif request.step == WARM:
                walk(access, request.files)
                _print_document({"result": {}})
            else:
                _print_document({"result": _run(request, access)})
                sys.stdin.readline()  # counters are read before the volume is unmounted
    except OSError as error:
        _print_document({"failure": str(error)})


if __name__ == "__main__":
    main()

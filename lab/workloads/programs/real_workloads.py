#!/usr/bin/python3
"""Real workloads on a file system on a block device, for `cephfit evaluate` (docs/evaluation.md).

Each link in this folder is one workload, with the steps of docs/workloads.md: `mail prepare`, `mail run`. The data
of a workload are built once, as an image of the whole volume. `prepare` copies it to the device, so every run on
each configuration begins with the same bytes, and all of the volume is allocated. CEPHFIT_IMAGES names the folder
that keeps the images; without it, each `prepare` builds its own. CEPHFIT_PACE limits the operations per second of
workloads with single operations, which then begin at random times. With CEPHFIT_EQUAL_WORK, a run ends not after
its seconds, but when it has done the operations that a lab's hard disks do in them: page caches then serve the
same share of the reads on storage of any speed. Both steps have separate mount and process namespaces: when they
end or are killed, the kernel ends all their processes and removes their mounts.
"""

import ctypes
import hashlib
import json
import mmap
import os
import pwd
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn, Self

KIB, MIB = 1 << 10, 1 << 20
VOLUME_NBYTES = 384 * MIB
NOTHING_BETTER = 2
INSIDE = "-in-namespaces"
ROOT = Path("/mnt")
"""Where volumes are mounted, seen only in the mount namespace of a step."""
POSTGRES = Path("/usr/lib/postgresql")
"""Has a folder for each installed version."""
COPY_NBYTES = 4 * MIB
UNUSED_SECONDS = 60.0
DIRTY_NBYTES = 8 * MIB
"""Buffered writers flush after this much, as a guest with little memory does."""


class Pace:
    """Makes operations begin at random times, as often per second as CEPHFIT_PACE says on average."""

    def __init__(self, n_threads: int = 1) -> None:
        pace = os.environ.get("CEPHFIT_PACE")
        self._rate = float(pace) / n_threads if pace else None
        self._choose = random.Random(os.environ["CEPHFIT_SEED"] + "pace") if pace else random.Random()
        self._due = time.monotonic()

    def wait(self) -> None:
        """Wait until the next operation is due; what is late is made up for."""
        if self._rate is not None:
            self._due += self._choose.expovariate(self._rate)
            time.sleep(max(0.0, self._due - time.monotonic()))


class Budget:
    """How long a run goes on: its seconds, or with CEPHFIT_EQUAL_WORK what a lab's hard disks do in them."""

    def __init__(self, seconds: float, rate: float) -> None:
        self.n_operations = round(rate * seconds) if rate and os.environ.get("CEPHFIT_EQUAL_WORK") else None
        self._until = time.monotonic() + seconds

    def lasts(self, count: float) -> bool:
        """Return whether the run goes on after a number of operations."""
        return count < self.n_operations if self.n_operations is not None else time.monotonic() < self._until


class RealWorkload:
    """A workload: `build` writes its data below a folder, `work` uses them for some time and returns its speed."""

    metric = "operations/s"
    filesystem = "ext4"
    rate = 0.0
    """What the hard disks of a lab do in a second, about, in its metric; 0: runs always take their seconds."""
    programs: Mapping[str, str] = {}
    """Programs that it runs, with their Debian packages."""

    def build(self, root: Path) -> None:
        raise NotImplementedError

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        """Return the operations per second."""
        operation = self.opened(root, choose)
        pace, budget = Pace(), Budget(seconds, self.rate)
        began = time.monotonic()
        count = 0
        while budget.lasts(count):
            operation()
            count += 1
            pace.wait()
        flush(root)
        return per_second(count, began)

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        """Return one operation."""
        raise NotImplementedError


class PgBench(RealWorkload):
    """PostgreSQL with the TPC-B-like transactions of pgbench; data of 16 MiB per unit of scale."""

    metric = "transactions/s"
    rate = 49.0
    scale, clients = 4, 1
    programs: Mapping[str, str] = {"initdb": "postgresql"}

    def build(self, root: Path) -> None:
        os.chown(root, *postgres_ids())
        data = root / "data"
        postgres("initdb", "--no-sync", "--auth=trust", "--pgdata", str(data))
        with Server(data, fsync="off") as server:
            server.call("pgbench", "--initialize", "--quiet", "--scale", str(self.scale))
            for _ in range(4):  # segments of the log, so that a run need not create them
                server.call("psql", "-qc", "SELECT pg_switch_wal() FROM pg_logical_emit_message(false, '', 'x')")
            server.call("psql", "-qc", "CHECKPOINT")

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        with Server(root / "data", fsync="on") as server:
            output = server.call(
                *("pgbench", "--no-vacuum", "--protocol", "prepared", *self._length(seconds)),
                *("--client", str(self.clients), "--jobs", str(min(self.clients, 2))),
                *("--random-seed", str(choose.randrange(1 << 30))),
            )
            done = re.search(r"^number of transactions actually processed: ([0-9]+)", output, re.M)
            found = re.search(r"^tps = ([0-9.]+)", output, re.M)
            if done and found and float(found[1]):
                print("operations", done[1])
                print_measured(float(done[1]) / float(found[1]))
        return float(found[1]) if found else 0.0

    def _length(self, seconds: float) -> tuple[str, str]:
        n_transactions = Budget(seconds, self.rate).n_operations
        if n_transactions is None:
            return "--time", str(round(seconds))
        return "--transactions", str(n_transactions // self.clients)


class PgBenchLarge(PgBench):
    scale, clients = 8, 4
    rate = 60.0


class Mail(RealWorkload):
    """A mail server: messages of 1 to 32 KiB delivered with fsync, read, and deleted."""

    filesystem = "xfs"
    rate = 72.0
    n_files = 4000

    def build(self, root: Path) -> None:
        write_files(root, self.n_files, KIB, 32 * KIB)

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        names = sorted(root.glob("d*/*"))
        block = os.urandom(32 * KIB)

        def deliver() -> None:
            name = new_name(root, choose)
            unfinished = name.with_suffix(".tmp")
            with unfinished.open("wb", buffering=0) as file:
                file.write(block[: choose.randrange(KIB, 32 * KIB)])
                os.fsync(file.fileno())
            unfinished.rename(name)
            names.append(name)

        def operation() -> None:
            place, kind = choose.randrange(len(names)), choose.random()
            if kind < 0.4:
                deliver()
            elif kind < 0.8:
                names[place].read_bytes()
            else:
                names[place], names[-1] = names[-1], names[place]
                names.pop().unlink()

        return operation


class FileServer(RealWorkload):
    """A file server: files of 16 to 256 KiB read, rewritten, extended, and deleted, without fsync."""

    filesystem = "xfs"
    rate = 60.0
    n_files = 1400

    def build(self, root: Path) -> None:
        write_files(root, self.n_files, 16 * KIB, 256 * KIB)

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        names = sorted(root.glob("d*/*"))
        block = os.urandom(256 * KIB)
        dirty = 0

        def write(name: Path, mode: str, nbytes: int) -> None:
            nonlocal dirty
            with name.open(mode, buffering=0) as file:
                file.write(block[:nbytes])
            dirty += nbytes
            if dirty >= DIRTY_NBYTES:
                flush(root)
                dirty = 0

        def operation() -> None:
            place, kind = choose.randrange(len(names)), choose.random()
            if kind < 0.55:
                names[place].read_bytes()
            elif kind < 0.75:
                write(names[place], "r+b", choose.randrange(16 * KIB, 256 * KIB))
            elif kind < 0.85:
                write(names[place], "ab", 16 * KIB)
            elif kind < 0.93:
                names.append(new_name(root, choose))
                write(names[-1], "wb", choose.randrange(16 * KIB, 256 * KIB))
            else:
                names[place], names[-1] = names[-1], names[place]
                names.pop().unlink()

        return operation


class DBench(RealWorkload):
    """dbench with two clients: the recorded calls of NetBench, with their flushes."""

    metric = "MB/s"
    programs: Mapping[str, str] = {"dbench": "dbench"}

    def build(self, root: Path) -> None:
        (root / "dbench").mkdir()

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        output = called("dbench", "-D", str(root / "dbench"), "-t", str(round(seconds)), "2")
        found = re.search(r"^Throughput ([0-9.]+) MB/sec", output, re.M)
        return float(found[1]) if found else 0.0


class Compile(RealWorkload):
    """A compiler reads sources and headers of 4 to 40 KiB that are not in memory, and writes object files."""

    rate = 39.0
    programs: Mapping[str, str] = {"gcc": "gcc"}
    n_sources, n_headers = 600, 600

    def build(self, root: Path) -> None:
        choose = random.Random("compile")
        for number in range(self.n_headers):
            lines = (
                f"extern int h{number}_{line}(int); /* {'-' * 60} */" for line in range(choose.randrange(30, 300))
            )
            (root / f"h{number}.h").write_text("\n".join(lines))
        for number in range(self.n_sources):
            used = choose.sample(range(self.n_headers), 8)
            text = "".join(f'#include "h{header}.h"\n' for header in used)
            text += "".join(
                f"int f{number}_{n}(int a) {{ return a * {n} + h{used[0]}_{n}(a); }}\n" for n in range(20)
            )
            (root / f"s{number}.c").write_text(text)

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        order = choose.sample(range(self.n_sources), self.n_sources)

        def operation() -> None:
            source = order.pop()
            called("gcc", "-pipe", "-O0", "-g", "-c", f"{root}/s{source}.c", "-o", f"{root}/s{source}.o")
            order.insert(0, source)

        return operation


class Unpack(RealWorkload):
    """An archive of a source tree (files of 1 to 64 KiB) is unpacked and flushed, and the old tree deleted."""

    metric = "files/s"
    rate = 200.0
    n_files = 400

    def build(self, root: Path) -> None:
        tree = root / "tree"
        tree.mkdir()
        write_files(tree, self.n_files, KIB, 64 * KIB)
        called("tar", "-C", str(root), "-cf", str(root / "tree.tar"), "tree")

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        began, count, budget = time.monotonic(), 0, Budget(seconds, self.rate)
        while budget.lasts(count):
            shutil.rmtree(root / "tree", ignore_errors=True)
            forget(root / "tree.tar")
            called("tar", "-C", str(root), "-xf", str(root / "tree.tar"))
            flush(root)
            count += self.n_files
        return per_second(count, began)


class Backup(RealWorkload):
    """A backup reads large files from begin to end, one after the other."""

    metric = "MiB/s"
    rate = 40.0
    n_files, nbytes = 9, 32 * MIB

    def build(self, root: Path) -> None:
        for number in range(self.n_files):
            (root / f"f{number}").write_bytes(os.urandom(self.nbytes))

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        place = choose.randrange(self.n_files) * self.nbytes
        buffer = bytearray(MIB)

        def operation() -> None:
            nonlocal place
            number, within = divmod(place, self.nbytes)
            path = root / f"f{number % self.n_files}"
            if within == 0:
                forget(path)
            with path.open("rb", buffering=0) as file:
                file.seek(within)
                file.readinto(buffer)
            place += MIB

        return operation


class Boot(RealWorkload):
    """A boot reads many files of 4 to 128 KiB, always in the same order, all over the disk."""

    metric = "files/s"
    rate = 350.0
    n_files = 3500

    def build(self, root: Path) -> None:
        write_files(root, self.n_files, 4 * KIB, 128 * KIB)

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        names = sorted(root.glob("d*/*"))
        random.Random("boot").shuffle(names)

        def operation() -> None:
            forget(names[-1])  # fast storage reads all files more than once
            names[-1].read_bytes()
            names.insert(0, names.pop())

        return operation


class LogAppend(RealWorkload):
    """A log of records of 200 to 4000 bytes, with fdatasync after every fourth."""

    metric = "records/s"
    filesystem = "xfs"
    rate = 113.0

    def build(self, root: Path) -> None:
        (root / "log").write_bytes(os.urandom(MIB))

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        log = os.open(root / "log", os.O_WRONLY | os.O_APPEND)
        block, count = os.urandom(4000), 0

        def operation() -> None:
            nonlocal count
            os.write(log, block[: choose.randrange(200, 4000)])
            count += 1
            if count % 4 == 0:
                os.fdatasync(log)

        return operation


class KeyValue(RealWorkload):
    """A key-value store: SQLite with a write-ahead log, each put durable, and three gets for each put."""

    rate = 90.0
    n_keys = 100_000

    def build(self, root: Path) -> None:
        store = self._store(root)
        store.execute("CREATE TABLE pairs (key INTEGER PRIMARY KEY, value BLOB)")
        store.executemany(
            "INSERT INTO pairs VALUES (?, ?)", ((key, os.urandom(1000)) for key in range(self.n_keys))
        )
        store.commit()
        store.close()

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        store = self._store(root)
        block = os.urandom(1000)

        def operation() -> None:
            key = choose.randrange(self.n_keys)
            if choose.random() < 0.25:
                value = block[: choose.randrange(100, 1000)]
                store.execute("UPDATE pairs SET value = ? WHERE key = ?", (value, key))
                store.commit()
            else:
                store.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()

        return operation

    def _store(self, root: Path) -> sqlite3.Connection:
        store = sqlite3.connect(root / "pairs.sqlite")
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -2000"):
            store.execute(f"PRAGMA {pragma}")
        return store


class ThreadedReader(RealWorkload):
    """Four threads read 8 to 64 KiB at random places of a file, without the page cache."""

    metric = "reads/s"
    rate = 490.0
    nbytes, n_threads = 288 * MIB, 4

    def build(self, root: Path) -> None:
        (root / "data").write_bytes(os.urandom(self.nbytes))

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        file = os.open(root / "data", os.O_RDONLY | os.O_DIRECT)
        counts = [0] * self.n_threads
        began = time.monotonic()

        def read(thread: int, mine: random.Random) -> None:
            buffer = memoryview(mmap.mmap(-1, 64 * KIB))
            pace, budget = Pace(self.n_threads), Budget(seconds, self.rate / self.n_threads)
            while budget.lasts(counts[thread]):
                nbytes = 8 * KIB * mine.randrange(1, 9)
                place = mine.randrange((self.nbytes - nbytes) // (8 * KIB)) * 8 * KIB
                os.preadv(file, [buffer[:nbytes]], place)
                counts[thread] += 1
                pace.wait()

        seeds = [random.Random(choose.random()) for _ in counts]
        threads = [threading.Thread(target=read, args=pair) for pair in enumerate(seeds)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return per_second(sum(counts), began)


class Copy(RealWorkload):
    """Files of 16 MiB are copied through the page cache, with an fsync at the end of each."""

    metric = "MiB/s"
    rate = 16.0
    n_files, nbytes = 8, 16 * MIB

    def build(self, root: Path) -> None:
        for number in range(self.n_files):
            (root / f"from{number}").write_bytes(os.urandom(self.nbytes))

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        began, count, budget = time.monotonic(), 0, Budget(seconds, self.rate)
        while budget.lasts(count * self.nbytes / MIB):
            source, copy = root / f"from{count % self.n_files}", root / f"to{count % self.n_files}"
            forget(source)
            with source.open("rb") as read, copy.open("wb") as written:
                shutil.copyfileobj(read, written, 256 * KIB)
                os.fsync(written.fileno())
            count += 1
        return per_second(count * self.nbytes / MIB, began)


WORKLOADS: dict[str, type[RealWorkload]] = {
    "pgbench-small": PgBench,
    "pgbench-large": PgBenchLarge,
    "mail": Mail,
    "file-server": FileServer,
    "dbench": DBench,
    "compile": Compile,
    "unpack": Unpack,
    "backup": Backup,
    "boot": Boot,
    "log-append": LogAppend,
    "key-value": KeyValue,
    "threaded-reader": ThreadedReader,
    "copy": Copy,
}


# What workloads use.


def per_second(count: float, began: float) -> float:
    """Return the operations per second since a moment, and state their number and the measured time."""
    seconds = time.monotonic() - began
    print("operations", round(count))
    print_measured(seconds)
    return count / seconds


def print_measured(seconds: float) -> None:
    """State that the measured time ends now: a database starts before it, and a file system is mounted."""
    now = time.time()
    print(f"measured {now - seconds:.6f} {now:.6f}")


def write_files(root: Path, n_files: int, least: int, most: int) -> None:
    """Write files of random sizes and contents into 20 folders."""
    choose = random.Random(f"{n_files}/{least}/{most}")
    for folder in range(20):
        (root / f"d{folder}").mkdir()
    for number in range(n_files):
        (root / f"d{number % 20}" / f"f{number}").write_bytes(os.urandom(choose.randrange(least, most)))


def new_name(root: Path, choose: random.Random) -> Path:
    return root / f"d{choose.randrange(20)}" / f"new{choose.randrange(1 << 40)}"


def flush(root: Path) -> None:
    """Write all changed data of a file system to its device."""
    folder = os.open(root, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(folder) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(folder)


def forget(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def called(*argv: str) -> str:
    """Run a program and return its output."""
    try:
        ended = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except FileNotFoundError as missing:
        print(missing, file=sys.stderr)
        sys.exit(NOTHING_BETTER)
    if ended.returncode != 0:
        sys.exit(f"{argv[0]} ended with {ended.returncode}: {ended.stdout[-500:]}")
    return ended.stdout


def postgres_ids() -> tuple[int, int]:
    entry = pwd.getpwnam("postgres")
    return entry.pw_uid, entry.pw_gid


def newest_postgres(folder: Path) -> Path:
    """Return the folder of the programs of the newest version below a folder: 15 on Debian 12, 17 on Debian 13."""
    binaries = folder.glob("*/bin")
    return max(binaries, key=lambda found: [int(n) for n in re.findall(r"\d+", found.parent.name)], default=folder)


def as_postgres(program: str, *arguments: str) -> list[str]:
    own = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    return [*own, str(newest_postgres(POSTGRES) / program), *arguments]


def postgres(program: str, *arguments: str) -> str:
    return called(*as_postgres(program, *arguments))


class Daemon:
    """A server within a block.

    At its end it gets a signal, by default SIGKILL: what it must keep is on the device already.
    """

    name = ""
    """For messages; empty: its program."""
    end_signal = signal.SIGKILL

    def __init__(self, argv: list[str], is_ready: Callable[[], bool]) -> None:
        self._argv, self._is_ready = argv, is_ready
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        try:
            self._process = subprocess.Popen(self._argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except FileNotFoundError as missing:
            print(missing, file=sys.stderr)
            sys.exit(NOTHING_BETTER)
        until = time.monotonic() + 60
        while not self._is_ready():
            if time.monotonic() > until or self._process.poll() is not None:
                sys.exit(f"{self.name or self._argv[0]} did not start")
            time.sleep(0.05)
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.send_signal(self.end_signal)
        self._process.wait()


class Server(Daemon):
    """PostgreSQL within a block, without background work that one run has and another lacks."""

    name = "PostgreSQL"

    def __init__(self, data: Path, *, fsync: str) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(data),
            "fsync": fsync,
            "shared_buffers": "16MB",
            "autovacuum": "off",
            "bgwriter_lru_maxpages": "0",
            "checkpoint_timeout": "1h",
            "min_wal_size": "80MB",
            "max_wal_size": "512MB",
        }
        if fsync == "off":  # the log of the loading is not kept, so that it fits
            settings |= {"wal_level": "minimal", "max_wal_senders": "0", "max_wal_size": "80MB"}
        self.end_signal = signal.SIGINT if fsync == "off" else signal.SIGQUIT
        self._at = ("--host", str(data), "--username", "postgres")
        ready = as_postgres("pg_isready", "--quiet", *self._at[:2])
        super().__init__(
            as_postgres("postgres", "-D", str(data), *(f"--{k}={v}" for k, v in settings.items())),
            lambda: subprocess.run(ready, check=False).returncode == 0,
        )

    def call(self, program: str, *arguments: str) -> str:
        return postgres(program, *self._at, *arguments)


# The steps.


def describe(workload: RealWorkload, name: str) -> None:
    """Print the description; a missing program ends the command here, before hours of measurements."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", str(newest_postgres(POSTGRES))])
    missing = {
        package: program for program, package in workload.programs.items() if not shutil.which(program, path=path)
    }
    if missing:
        print(f"{', '.join(missing.values())} not found: apt install {' '.join(missing)}", file=sys.stderr)
        sys.exit(NOTHING_BETTER)
    described = {"name": name, "metric": workload.metric, "volume": str(VOLUME_NBYTES)}
    print(json.dumps({**described, "filesystem": workload.filesystem}))


def prepare(workload: RealWorkload, name: str) -> None:
    kept = os.environ.get("CEPHFIT_IMAGES")
    with tempfile.TemporaryDirectory(prefix="cephfit-image-") as own:
        digest = hashlib.sha256(Path(sys.argv[0]).read_bytes()).hexdigest()[:12]
        image = Path(kept or own) / f"{name}-{digest}.img"
        if not image.exists():
            build(workload, image)
        copy_to_device(image, Path(os.environ["CEPHFIT_DEVICE"]))


def build(workload: RealWorkload, image: Path) -> None:
    """Build the image of a volume; unused blocks have random contents, so that all of the volume is allocated."""
    part = image.with_suffix(".part")
    with part.open("wb") as file:
        for _ in range(VOLUME_NBYTES // COPY_NBYTES):
            file.write(os.urandom(COPY_NBYTES))
    if workload.filesystem == "xfs":
        called("mkfs.xfs", "-q", "-f", "-K", str(part))
    else:
        called(
            "mkfs.ext4",
            "-q",
            "-F",
            "-b",
            "4096",
            "-E",
            "nodiscard,lazy_itable_init=0",
            "-J",
            "size=16",
            "-m",
            "0",
            str(part),
        )
    called("mount", "-o", "loop", str(part), str(ROOT))
    ROOT.chmod(0o755)
    workload.build(ROOT)
    called("umount", str(ROOT))
    part.rename(image)


def copy_to_device(image: Path, device: Path) -> None:
    """Copy an image with two writes outstanding, which is as fast as the lab is."""
    source, target = os.open(image, os.O_RDONLY), os.open(device, os.O_WRONLY | os.O_DIRECT | os.O_EXCL)
    places = iter(range(0, VOLUME_NBYTES, COPY_NBYTES))
    failures: list[BaseException] = []

    def copy() -> None:
        buffer = mmap.mmap(-1, COPY_NBYTES)
        try:
            for place in places:
                os.preadv(source, [buffer], place)
                os.pwritev(target, [buffer], place)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    os.fsync(target)


def begin_again_in_namespaces(step: str) -> NoReturn:
    """Replace this process by one whose namespaces end all its processes and mounts with it."""
    own = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
    ]
    os.execvp(own[0], [*own, sys.executable, sys.argv[0], step + INSIDE])


def run(workload: RealWorkload) -> None:
    device, seconds = os.environ["CEPHFIT_DEVICE"], float(os.environ["CEPHFIT_SECONDS"])
    # Several clients may run at once from copies of one image, so that their file systems have one UUID.
    options = "noatime,nouuid" if workload.filesystem == "xfs" else "noatime"
    called("mount", "-o", options, device, str(ROOT))
    Path("/proc/sys/vm/drop_caches").write_text("3")
    print(workload.work(ROOT, seconds, random.Random(os.environ["CEPHFIT_SEED"])))


def cleanup() -> None:
    """Wait until the kernel has ended what a killed run left: a mounted device cannot be opened exclusively."""
    until = time.monotonic() + UNUSED_SECONDS
    while True:
        try:
            os.close(os.open(os.environ["CEPHFIT_DEVICE"], os.O_RDONLY | os.O_EXCL))
            return
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"the device is in use: {error}")
            time.sleep(0.05)


def main() -> None:
    name, step = Path(sys.argv[0]).name, sys.argv[1]
    workload = WORKLOADS[name]()
    if step == "describe":
        describe(workload, name)
    elif step in ("prepare", "run"):
        begin_again_in_namespaces(step)
    elif step == "prepare" + INSIDE:
        prepare(workload, name)
    elif step == "run" + INSIDE:
        run(workload)
    else:
        cleanup()


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Further real programs on a file system, as workloads of docs/workloads.md: servers, and tools of developers.

No model of cephfit was built on them: `make evaluate` runs the links to real_workloads.py, and
these were run on the sweep of benchmarks/unseen.yaml (docs/evidence.md).
"""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

sys.dont_write_bytecode = True  # the folder may belong to another user
sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from cephfit.lab.workloads.programs import real_workloads
else:
    import real_workloads  # runs in the Python of the system, which has no cephfit


def _succeeds(*argv: str) -> bool:
    return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


class MariaDb(real_workloads.RealWorkload):
    """MariaDB with the read-write transactions of sysbench, two clients; each commit is durable."""

    metric = "transactions/s"
    rate = 5.0
    programs: Mapping[str, str] = {"mariadbd": "mariadb-server", "sysbench": "sysbench"}
    n_rows, n_clients = 400_000, 2
    _SETTINGS = (
        "--skip-networking",
        "--user=mysql",
        "--innodb-buffer-pool-size=16M",
        "--innodb-log-file-size=32M",
        "--performance-schema=off",
        "--innodb-stats-auto-recalc=off",
    )

    def build(self, root: Path) -> None:
        data = root / "data"
        own = ("--no-defaults", f"--datadir={data}", "--user=mysql", "--innodb-log-file-size=32M")
        real_workloads.called(
            "mariadb-install-db", *own, "--auth-root-authentication-method=normal", "--skip-test-db"
        )
        with self._server(root, "--innodb-flush-log-at-trx-commit=0"):
            self._client(root, "mariadb-admin", "create", "sbtest")
            real_workloads.called(*self._sysbench(root), "prepare")
            self._client(root, "mariadb-admin", "shutdown")

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        n_operations = real_workloads.Budget(seconds, self.rate).n_operations
        length = (
            (f"--time={round(seconds)}",) if n_operations is None else (f"--events={n_operations}", "--time=0")
        )
        with self._server(root):
            seed = f"--rand-seed={choose.randrange(1, 1 << 30)}"
            output = real_workloads.called(*self._sysbench(root), *length, seed, "run")
            done = re.search(r"transactions: +([0-9]+)", output)
            took = re.search(r"total time: +([0-9.]+)s", output)
            if done is None or took is None:
                sys.exit(f"sysbench printed no result: {output[-500:]}")
            print("operations", done[1])
            real_workloads.print_measured(float(took[1]))
        return float(done[1]) / float(took[1])

    def _server(self, root: Path, *options: str) -> real_workloads.Daemon:
        own = ("--no-defaults", f"--datadir={root / 'data'}", f"--socket={root / 'socket'}", *self._SETTINGS)
        root.chmod(0o777)
        return real_workloads.Daemon(
            ["mariadbd", *own, *options],
            lambda: _succeeds("mariadb-admin", "--no-defaults", f"--socket={root / 'socket'}", "ping"),
        )

    def _client(self, root: Path, program: str, *words: str) -> str:
        return real_workloads.called(
            program, "--no-defaults", f"--socket={root / 'socket'}", "--user=root", *words
        )

    def _sysbench(self, root: Path) -> list[str]:
        own = ("--mysql-user=root", f"--mysql-socket={root / 'socket'}", "--db-driver=mysql")
        size = (f"--table-size={self.n_rows}", "--tables=1", f"--threads={self.n_clients}")
        return ["sysbench", "oltp_read_write", *own, *size]


class RocksDb(real_workloads.RealWorkload):
    """RocksDB, as db_bench uses it: two threads, three gets for each durable put, and compactions of the puts."""

    filesystem = "xfs"
    rate = 190.0
    programs: Mapping[str, str] = {"db_bench": "rocksdb-tools"}
    n_keys, nbytes, n_threads = 200_000, 800, 2

    def build(self, root: Path) -> None:
        real_workloads.called(*self._bench(root), "--benchmarks=fillrandom,compact", "--disable_wal=1")

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        n_operations = real_workloads.Budget(seconds, self.rate).n_operations
        length = f"--duration={round(seconds)}"
        if n_operations is not None:
            length = f"--reads={n_operations // self.n_threads}"
        output = real_workloads.called(
            *(*self._bench(root), "--use_existing_db=1", "--benchmarks=readrandomwriterandom"),
            *("--readwritepercent=75", "--sync=1", f"--threads={self.n_threads}", length),
            f"--seed={choose.randrange(1, 1 << 30)}",
        )
        found = re.search(r"^readrandomwriterandom .* ([0-9.]+) seconds ([0-9]+) operations", output, re.M)
        if found is None:
            sys.exit(f"db_bench printed no result: {output[-500:]}")
        print("operations", found[2])
        real_workloads.print_measured(float(found[1]))
        return float(found[2]) / float(found[1])

    def _bench(self, root: Path) -> list[str]:
        sizes = {
            "num": self.n_keys,
            "value_size": self.nbytes,
            "cache_size": 4 * real_workloads.MIB,
            "write_buffer_size": real_workloads.MIB,
            "target_file_size_base": 4 * real_workloads.MIB,
            "max_bytes_for_level_base": 16 * real_workloads.MIB,
        }
        options = ("--use_direct_reads=1", "--compression_type=none", "--histogram=0")
        return ["db_bench", f"--db={root / 'db'}", *(f"--{key}={value}" for key, value in sizes.items()), *options]


class Redis(real_workloads.RealWorkload):
    """Redis appends each of the writes of four clients to its log, and answers when the log is on the disk."""

    metric = "writes/s"
    rate = 72.0
    programs: Mapping[str, str] = {"redis-server": "redis-server", "redis-benchmark": "redis-tools"}
    n_clients, nbytes = 4, 512

    def build(self, root: Path) -> None:
        (root / "redis").mkdir()

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        # redis-benchmark knows no time: without a budget, the writes of a hard disk
        count = real_workloads.Budget(seconds, self.rate).n_operations or round(self.rate * seconds)
        socket = str(root / "socket")
        log = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
        argv = ["redis-server", "--port", "0", "--unixsocket", socket, "--dir", str(root / "redis"), "--save", ""]
        with real_workloads.Daemon([*argv, *log], lambda: _succeeds("redis-cli", "-s", socket, "ping")):
            began = time.monotonic()
            real_workloads.called(
                *("redis-benchmark", "-s", socket, "-q", "-t", "set", "-n", str(count), "-c", str(self.n_clients)),
                *("-d", str(self.nbytes), "-r", "100000"),
            )
            return real_workloads.per_second(count, began)


class Rsync(real_workloads.RealWorkload):
    """rsync compares folders by checksum and copies what is missing: 30 files of 8 to 256 KiB, a third of them."""

    metric = "files/s"
    rate = 44.0
    programs: Mapping[str, str] = {"rsync": "rsync"}
    n_files, n_folders = 900, 30

    def build(self, root: Path) -> None:
        choose = random.Random("rsync")
        for number in range(self.n_files):
            folder = root / "from" / f"d{number % self.n_folders}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{number}").write_bytes(
                os.urandom(choose.randrange(8 * real_workloads.KIB, 256 * real_workloads.KIB))
            )
        shutil.copytree(root / "from", root / "to")

    def work(self, root: Path, seconds: float, choose: random.Random) -> float:
        began, count, budget = time.monotonic(), 0, real_workloads.Budget(seconds, self.rate)
        folders: list[str] = []
        while budget.lasts(count):
            folders = folders or choose.sample(sorted(f.name for f in (root / "from").iterdir()), self.n_folders)
            name = folders.pop()
            source, target = root / "from" / name, root / "to" / name
            files = sorted(source.iterdir())
            for file in files:
                real_workloads.forget(file)
                if choose.random() < 1 / 3:
                    (target / file.name).unlink()
                else:
                    real_workloads.forget(target / file.name)
            real_workloads.called("rsync", "--archive", "--checksum", "--fsync", f"{source}/", f"{target}/")
            count += len(files)
        real_workloads.flush(root)
        return real_workloads.per_second(count, began)


class Git(real_workloads.RealWorkload):
    """git checks out one commit after the other: 1,500 files of 1 to 32 KiB, a fifth of them different."""

    metric = "checkouts/s"
    rate = 0.5
    programs: Mapping[str, str] = {"git": "git"}
    n_files, n_commits = 1500, 6

    def build(self, root: Path) -> None:
        choose = random.Random("git")
        tree = root / "tree"
        tree.mkdir()
        self._git(root, "init", "--quiet")
        names = [tree / f"d{number % 40}" / f"f{number}" for number in range(self.n_files)]
        for commit in range(self.n_commits):
            for name in names if commit == 0 else choose.sample(names, self.n_files // 5):
                name.parent.mkdir(exist_ok=True)
                name.write_text("\n".join(choose.randbytes(30).hex() for _ in range(choose.randrange(16, 512))))
            self._git(root, "add", "--all")
            self._git(root, "commit", "--quiet", "--message", f"commit {commit}")
            self._git(root, "tag", f"t{commit}")
        self._git(root, "gc", "--quiet")

    def opened(self, root: Path, choose: random.Random) -> Callable[[], None]:
        now = self.n_commits - 1

        def operation() -> None:
            nonlocal now
            now = choose.choice([commit for commit in range(self.n_commits) if commit != now])
            for file in (root / "tree" / ".git" / "objects").rglob("*"):
                if file.is_file():
                    real_workloads.forget(file)
            self._git(root, "checkout", "--quiet", f"t{now}")
            real_workloads.flush(root)

        return operation

    def _git(self, root: Path, *words: str) -> None:
        person = ("-c", "user.name=cephfit", "-c", "user.email=cephfit@localhost", "-c", "safe.directory=*")
        real_workloads.called("git", "-C", str(root / "tree"), *person, "-c", "gc.auto=0", *words)


real_workloads.WORKLOADS |= {
    "mariadb": MariaDb,
    "rocksdb": RocksDb,
    "redis": Redis,
    "rsync": Rsync,
    "git": Git,
}

if __name__ == "__main__":
    real_workloads.main()

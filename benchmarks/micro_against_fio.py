"""Compare the engine `micro` with fio, in the operations on files that both have: prints a table of ratios.

Both work on one file system, ext4, on the same files, in turn, and the order changes with each round. Rates are
compared, flushes included; of operations on names the mean latency, because fio's clock of jobs counts whole
milliseconds. A ratio of 1 means that both measure the same. Without a device, the file system is in a sparse file
behind a loop device: no throttle hides the time of the programs. It needs root, and takes some minutes.

    .venv/bin/python benchmarks/micro_against_fio.py [--device /dev/loopN] [--rounds 5]

A device is overwritten, and must be empty; `cephfit lab up --with local` has one that is throttled. In fio an
append keeps its file open, and flushes it; `micro` opens and closes it each time, and flushes the file system.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.protocols import Client
from cephfit.core.units import KIB, MIB, NS_PER_S
from cephfit.core.values.measurement import Measurement
from cephfit.measure.block_device import require_empty
from cephfit.measure.engine import CellRun
from cephfit.measure.micro.file_places import FOLDER, FilePlace
from cephfit.measure.micro.micro_engine import MicroEngine
from cephfit.results.statistics.summary_statistics import level_interval, pooled_spread
from cephfit.sweep.declaration.sweep_file import parse_sweep

_NAMESPACE = "CEPHFIT_MICRO_AGAINST_FIO"
_DISK_NBYTES = 1024 * MIB
_ACCESS_NBYTES = 4 * KIB
_SWEEP = """
schema_version: 1
name: micro-against-fio
configurations: {{A: {{why: one file system}}}}
measurement:
  engine: micro
  operations: [{operation}]
  sizes: [4K]
  files: {n_files}
  file_size: {file_size}
  clients: 1
  volume_size: 512M
  repeats: 2
  run_seconds: {seconds}
  direct: {direct}
  cache: warm
  seed: 1
"""


@dataclass(frozen=True, slots=True)
class Case:
    """An operation that both programs have.

    Attributes:
        title: in the table.
        operation: of `micro`.
        fio: options of fio, in addition to those of all.
        n_files, file_size: that exist before it.
        direct: without the page cache.
        flushes: after each operation.
        of_names: compared by latency.
    """

    title: str
    operation: str
    fio: tuple[str, ...]
    n_files: int = 1
    file_size: str = "16M"
    direct: bool = True
    flushes: bool = False
    of_names: bool = False

    def measurement(self, seconds: float) -> Measurement:
        text = _SWEEP.format(
            operation=self.operation,
            n_files=self.n_files,
            file_size=self.file_size,
            seconds=seconds,
            direct=str(self.direct).lower(),
        )
        return parse_sweep(text + ("  sync: fsync\n" if self.flushes else ""), file=self.title).measurement


_RANDOM = ("--norandommap", "--randrepeat=0")
_NAMES = ("--nrfiles=400", "--openfiles=1", "--filesize=4k")
CASES = (
    Case("random read, 4K", "keep-read", ("--rw=randread", *_RANDOM)),
    Case("random write, 4K", "keep-write", ("--rw=randwrite", *_RANDOM)),
    Case("random write, 4K, flushed", "keep-write", ("--rw=randwrite", "--fsync=1", *_RANDOM), flushes=True),
    Case("append, 4K, flushed", "append", ("--rw=write", "--file_append=1", "--fsync=1"), flushes=True),
    Case("random read, 4K, from the page cache", "keep-read", ("--rw=randread", *_RANDOM), direct=False),
    Case(
        "create",
        "create",
        ("--ioengine=filecreate", "--rw=write", "--create_on_open=1", *_NAMES),
        400,
        "4K",
        of_names=True,
    ),
    Case("stat", "stat", ("--ioengine=filestat", "--rw=read", *_NAMES), 400, "4K", of_names=True),
    Case("delete", "delete", ("--ioengine=filedelete", "--rw=read", *_NAMES), 400, "4K", of_names=True),
)


def prepared(case: Case, root: Path, seconds: float, seed: int) -> tuple[MicroEngine, CellRun]:
    """Restore the files of an operation."""
    measurement = case.measurement(seconds)
    client = Client("c0", {}, measurement.volume_nbytes)
    run = CellRun("A", measurement.cells[0], seed, 0, measurement, (client,), {"c0": seed})
    engine = MicroEngine(place_of=lambda _: FilePlace(FOLDER, str(root)))
    engine.prepare(run)
    engine.warm(run)
    return engine, run


def by_micro(case: Case, root: Path, seconds: float, seed: int) -> float:
    """Return operations per second, or of names the inverse of the mean latency, as `micro` measures them."""
    engine, run = prepared(case, root, seconds, seed)
    outcome = engine.run(run).clients["c0"]
    if outcome.metrics is None:
        sys.exit(f"{case.title}: {outcome.failure}")
    return NS_PER_S / outcome.metrics.latency_mean_ns if case.of_names else outcome.metrics.iops


def by_fio(case: Case, root: Path, seconds: float, seed: int) -> float:
    """Return the same as fio measures it, on the file that `micro` has prepared, or on as many new files."""
    prepared(case, root, seconds, seed)
    argv = ["fio", "--name=x", "--output-format=json", "--fallocate=none", f"--randseed={seed}", *case.fio]
    file = root / "d00000" / "f000000"
    before = file.stat().st_size if file.exists() else 0
    if case.of_names:
        folder = root / "of-fio"
        folder.mkdir(exist_ok=True)
        argv += [f"--directory={folder}", f"--bs={_ACCESS_NBYTES}"]
    else:
        size = 256 * MIB if case.operation == "append" else before
        argv += [f"--filename={file}", f"--size={size}", f"--bs={_ACCESS_NBYTES}", f"--runtime={seconds:g}"]
        argv += ["--ioengine=psync", f"--direct={case.direct:d}", "--time_based", "--invalidate=0"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case.title}: fio: {done.stderr.strip() or done.stdout.strip()}")
    (job,) = json.loads(done.stdout)["jobs"]
    figures = max((job["read"], job["write"]), key=lambda its: its["total_ios"])
    if case.operation == "append" and (grown := file.stat().st_size - before) != figures["io_bytes"]:
        sys.exit(f"{case.title}: fio wrote {figures['io_bytes']} bytes, the file grew by {grown}")
    for name in (root / "of-fio").glob("*"):
        name.unlink()
    return NS_PER_S / float(figures["clat_ns"]["mean"]) if case.of_names else float(figures["iops"])


Program = Callable[[Case, Path, float, int], float]
PROGRAMS: Mapping[str, Program] = {"micro": by_micro, "fio": by_fio}


def measured(root: Path, n_rounds: int, seconds: float) -> Mapping[str, Mapping[str, list[float]]]:
    """Return the figures of all rounds by title and program."""
    found: dict[str, dict[str, list[float]]] = {case.title: {name: [] for name in PROGRAMS} for case in CASES}
    for number in range(n_rounds):
        for case in CASES:
            case_root = root / case.title.replace(" ", "-").replace(",", "")
            case_root.mkdir(exist_ok=True)
            for name in list(PROGRAMS)[:: 1 if number % 2 else -1]:
                found[case.title][name].append(PROGRAMS[name](case, case_root, seconds, number + 1))
            print(f"round {number + 1}: {case.title}", file=sys.stderr, flush=True)
    return found


def lines(found: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[str]:
    """Return the table."""
    yield "| operation | `micro`, per second | fio, per second | `micro` / fio (95 %) |"
    yield "|---|---:|---:|---:|"
    for title, its in found.items():
        micro, fio = its["micro"], its["fio"]
        # Both were measured in the same rounds: the scatter of the ratios is what counts.
        ratios = [m / f for m, f in zip(micro, fio, strict=True)]
        interval = level_interval(ratios, pooled_spread([ratios]))
        bounds = f" ({interval.low:.3g} to {interval.high:.3g})" if interval else ""
        means = [math.fsum(values) / len(values) for values in (micro, fio)]
        yield f"| {title} | {means[0]:,.0f} | {means[1]:,.0f} | {math.fsum(ratios) / len(ratios):.3g}{bounds} |"


@contextmanager
def file_system(device: Path | None) -> Iterator[Path]:
    """Mount a new ext4 on a device, or in a new file, within the block."""
    with tempfile.TemporaryDirectory() as work:
        root, file = Path(work) / "mounted", Path(work) / "disk"
        root.mkdir()
        if device is None:
            with file.open("wb") as stream:
                stream.truncate(_DISK_NBYTES)
        else:
            require_empty(device, where=str(device))
        target = str(device or file)
        _call("mkfs.ext4", "-q", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", target)
        _call("mount", "-o", "noatime" if device else "loop,noatime", target, str(root))
        try:
            yield root
        finally:
            _call("umount", str(root))
            if device is not None:
                _call("wipefs", "--quiet", "--all", target)


def _call(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: {done.stderr.strip()}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", type=Path, help="empty block device, which is overwritten")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=1.5, help="of each run on data")
    asked = arguments.parse_args()
    if _NAMESPACE not in os.environ:  # in a mount namespace, which ends with the process
        os.environ[_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    with file_system(asked.device) as root:
        print("\n".join(lines(measured(root, asked.rounds, asked.seconds))))


if __name__ == "__main__":
    main()

"""Peak memory of profiling a trace of more than 4 GB, and what both cores give over one.

Run with: .venv/bin/python benchmarks/trace_memory.py [--quick] [NAME...]

The memory is the kernel's peak of the resident set of `cephfit trace profile` (``ru_maxrss``), with Python and all
libraries in it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trace_files

TENCENT_VOLUMES = 5584
"""In the published trace of Tencent's block storage, the most of any trace that is read; Alibaba's has 1,000."""

MAKERS: dict[str, Callable[[Path, int], object]] = {
    "blktrace": trace_files.write_blktrace,
    "vscsi-binary": trace_files.write_vscsi_binary,
    "alibaba": trace_files.write_alibaba,
    "volumes": partial(trace_files.write_alibaba, n_disks=TENCENT_VOLUMES),
}


def profiled(path: Path, *prefix: str) -> tuple[float, float, float]:
    """Seconds on the wall, seconds of processor time and peak MiB of one run of the program."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "cephfit.cli.main", "trace", "profile", str(path), "--json"],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"cephfit ended with status {status}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    if sys.argv[1:2] == ["--make"]:
        MAKERS[sys.argv[2]](Path(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a file of 144 MB: to see that it runs")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MAKERS)} [all]")
    chosen = parser.parse_args()
    n_events = 3_000_000 if chosen.quick else 90_000_000
    for name in chosen.names or MAKERS:
        with tempfile.TemporaryDirectory(prefix="cephfit-benchmark-") as folder:
            path = Path(folder) / "large.trace"
            n = n_events if name == "blktrace" else n_events * 3 // 2
            # By a process of its own: a program's peak includes that of the process it was forked from.
            subprocess.run([sys.executable, __file__, "--make", name, str(path), str(n)], check=True)
            size = path.stat().st_size / 1e9
            for cores, prefix in (("both cores", ()), ("one core", ("taskset", "-c", "1"))):
                wall, processor, peak = profiled(path, *prefix)
                print(
                    f"{name:12s} {size:5.2f} GB, {n:,d} events, {cores:10s}: {wall:6.1f} s "
                    f"({n / wall / 1e6:.1f} M events/s), {processor:6.1f} s of processors, peak {peak:.0f} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()

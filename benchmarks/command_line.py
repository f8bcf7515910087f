"""How long a person waits for `cephfit --help`, against Python's own start in the same run.

Run with: .venv/bin/python benchmarks/command_line.py
"""

import statistics
import subprocess
import sys
import time

RUNS = 15


def seconds_of(*argv: str) -> float:
    started = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    """Interleave both programs, so that a slow moment of the machine hits both; print medians and their ratio."""
    bare: list[float] = []
    helped: list[float] = []
    for _ in range(RUNS):
        bare.append(seconds_of(sys.executable, "-c", "pass"))
        helped.append(seconds_of(sys.executable, "-m", "cephfit.cli.main", "--help"))
    ratio = statistics.median(h / b for h, b in zip(helped, bare, strict=True))
    print(f"python -c pass     median {statistics.median(bare) * 1e3:6.1f} ms")
    print(
        f"cephfit --help     median {statistics.median(helped) * 1e3:6.1f} ms, slowest {max(helped) * 1e3:.1f} ms"
    )
    print(f"ratio              median {ratio:6.1f}")


if __name__ == "__main__":
    main()

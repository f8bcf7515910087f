#!/usr/bin/env python3
"""A fio job as the workload that `cephfit verify` and `cephfit trace workload` run (docs/workloads.md).

FIO_JOB names the job file, which works on ${CEPHFIT_DEVICE}. Such a job that does what a trace did is written by
    cephfit trace jobs profile.json --pace full-speed --size 1G --file '${CEPHFIT_DEVICE}' -o myapp.fio
VOLUME is the size of the volume. The value is the accesses per second, reads and writes of all sections together:
they run at once, so a job whose sections wait for each other (stonewall) is no such workload.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NOTHING_BETTER = 2


def job_text() -> str:
    path = Path(os.environ.get("FIO_JOB") or "(not set)")
    if not path.is_file():
        print(f"FIO_JOB is to be the path of a fio job, and is {str(path)!r}", file=sys.stderr)
        sys.exit(NOTHING_BETTER)
    return path.read_text()


def describe() -> None:
    text = job_text()
    name = re.sub(r"[^a-z0-9._-]+", "-", Path(os.environ["FIO_JOB"]).stem.lower()).strip("._-")[:40]
    # What is in here is what must be alike for runs to be compared, so the job is, too.
    print(
        json.dumps(
            {
                "name": name or "fio-job",
                "metric": "accesses/s",
                "volume": os.environ.get("VOLUME", "1G"),
                "job_sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
        )
    )


def prepare() -> None:
    """Blocks that were never written would be read without any disk."""
    fill = ["--name=fill", "--rw=write", "--bs=4M", "--iodepth=4", "--ioengine=libaio", "--refill_buffers"]
    fio([*fill, "--direct=1", "--end_fsync=1", f"--filename={os.environ['CEPHFIT_DEVICE']}"])


def run() -> None:
    seconds, seed = os.environ["CEPHFIT_SECONDS"], os.environ["CEPHFIT_SEED"]
    text = re.sub(r"(?m)^(runtime|time_based|randrepeat|randseed)\b.*\n?", "", job_text())
    for_all = (
        f"[global]\nthread=1\nruntime={seconds}s\ntime_based=1\nrandrepeat=0\nrandseed={seed}\ngroup_reporting=1\n"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".fio") as job:
        job.write(for_all + text)
        job.flush()
        said = fio(["--output-format=json", job.name])
    found = json.loads(said[said.index("{") :])  # fio may note something before it
    done = [job[way] for job in found["jobs"] for way in ("read", "write") if job[way]["total_ios"]]
    print(sum(way["total_ios"] / (way["runtime"] / 1000) for way in done))


def fio(arguments: list[str]) -> str:
    # One process, which the kernel kills with this one: forked workers of fio have sessions of their own, which no
    # kill of a process group reaches.
    command = ["setpriv", "--pdeathsig", "KILL", "fio", *arguments, "--thread"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def cleanup() -> None:
    """Nothing is mounted, and fio dies with this program."""


if __name__ == "__main__":
    {"describe": describe, "prepare": prepare, "run": run, "cleanup": cleanup}[sys.argv[1]]()

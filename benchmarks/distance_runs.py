"""Measure a lab at several distances in turn: writes the data of `distance_check.py`.

Each round of a cell runs fio once at every distance, in shuffled order, on one attached image, so that other work
on the machine affects all distances alike. It needs a lab with a network for clients, and takes about one minute a
round.

    cephfit lab up --name far --client-network
    .venv/bin/python benchmarks/distance_runs.py far --rounds 8
"""

import argparse
import csv
import json
import random
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from cephfit.ceph.environment.network_emulation import Emulation
from cephfit.lab.cluster import Lab
from cephfit.lab.devices.image_export import FuseExport, attach, detach
from cephfit.lab.network.client_network import ClientNetwork

DATA = Path(__file__).resolve().parent / "data" / "distance"
PATHS: Mapping[str, Emulation] = {
    "A": Emulation(),
    "one-way-2ms": Emulation(delay_ms=2),
    "one-way-8ms": Emulation(delay_ms=8),
    "loss-8ms": Emulation(delay_ms=8, loss_pct=1),
    "rate-2ms": Emulation(delay_ms=2, rate_mbit=100),
}
CALIBRATED = (
    *PATHS.values(),
    Emulation(delay_ms=25, jitter_ms=10),
    Emulation(delay_ms=10, loss_pct=2.5),
    Emulation(delay_ms=25, rate_mbit=1000),
)
CELLS = (
    ("4K", "randread", 1, ""),
    ("4K", "randread", 8, ""),
    ("4K", "randwrite", 1, ""),
    ("128K", "randread", 1, ""),
)
COLUMNS = (
    "configuration",
    "size",
    "pattern",
    "client",
    "run",
    "iops",
    "iodepth",
    "clients",
    "sync",
    "load",
    "rtt_ms",
    "p20_ms",
    "median_ms",
)
IMAGE, NBYTES = "distance-runs", 256 << 20
RUN_SECONDS, RAMP_SECONDS = 2.0, 0.5
PINGS = 20


def run_fio(device: Path, size: str, pattern: str, iodepth: int, sync: str) -> tuple[float, float, float]:
    """Return accesses per second, and the 20th percentile and the median of their latency in ms."""
    argv = [
        "fio", "--name=run", f"--filename={device}", f"--bs={size}", f"--rw={pattern}", f"--iodepth={iodepth}",
        "--ioengine=libaio", "--direct=1", "--time_based", f"--runtime={RUN_SECONDS}s", "--randrepeat=0",
        f"--ramp_time={RAMP_SECONDS}s", "--output-format=json", *(["--fsync=1"] if sync else []),
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    its = job["read" if "read" in pattern else "write"]
    percentiles = its["clat_ns"]["percentile"]
    p20, median = (percentiles[f"{percent}.000000"] / 1e6 for percent in (20, 50))
    return float(its["iops"]), p20, median


def measure(device: Path, network: ClientNetwork, rounds: int) -> None:
    """Write the rates of all rounds, each round when it is complete."""
    rows: list[tuple[object, ...]] = []
    rng = random.Random(2002)
    for number in range(rounds):
        for size, pattern, iodepth, sync in CELLS:
            for name in rng.sample(list(PATHS), len(PATHS)):
                network.set(PATHS[name])
                # By the pings of one moment: other work on the machine delays the relay, too.
                rtt = network.read(pings=PINGS, one_by_one=True).figures.rtt_mean_ms
                iops, p20, median = run_fio(device, size, pattern, iodepth, sync)
                load = f"depth-{iodepth}" if iodepth > 1 else sync
                figures = (f"{iops:.3f}", iodepth, 1, sync, load, f"{rtt:.4f}", f"{p20:.4f}", f"{median:.4f}")
                rows.append((name, size, pattern, "c0", number, *figures))
        with (DATA / "baselines.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([COLUMNS, *sorted(rows, key=lambda row: tuple(map(str, row)))])
        print(f"round {number + 1} of {rounds} at {time.strftime('%H:%M:%S')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lab")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--pool", default="rbd")
    asked = parser.parse_args()
    lab = Lab.open(asked.lab)
    network = lab.client_network
    if network is None:
        parser.error("create the lab with --client-network")
    DATA.mkdir(exist_ok=True)
    found = []
    for values in CALIBRATED:
        network.set(values)
        found.append(network.calibrate().to_json())
    (DATA / "path.json").write_text(json.dumps(found, indent=1) + "\n")
    network.set(Emulation())
    rbd = ["rbd", "--conf", str(lab.conf), "--pool", asked.pool]
    subprocess.run([*rbd, "create", IMAGE, "--size", f"{NBYTES >> 20}M"], check=True)
    try:
        device = attach(
            IMAGE, pool=asked.pool, conf=lab.conf, folder=lab.folder, nbytes=NBYTES, path=FuseExport.name,
            network=network,
        )  # fmt: skip
        with lab.full_speed():
            subprocess.run(
                ["dd", "if=/dev/urandom", f"of={device}", "bs=4M", "oflag=direct", "count=64"], check=True
            )
        measure(device, network, asked.rounds)
    finally:
        network.set(Emulation())
        detach(IMAGE, pool=asked.pool, folder=lab.folder)
        subprocess.run([*rbd, "rm", "--no-progress", IMAGE], check=True)


if __name__ == "__main__":
    main()

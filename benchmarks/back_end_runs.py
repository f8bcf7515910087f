"""Run real workloads on every back end of a lab: writes the folder that `back_end_advice.py` checks.

On each target of the lab (RBD, then the other back ends in the lab's order) the sweep `back_ends.yaml` is
measured, and the workloads run on the configurations that the target supports. The first run on RBD's default is
recorded: all targets share the profiles. Each target gets an evaluation folder. After an interrupt, the same
command continues. It needs root, and takes hours for three workloads and five targets; with `--brief`
minutes for each target. `--minutes` begins no target that would end too late.

    cephfit lab up --name back-ends --with swift,iscsi,nfs,local
    .venv/bin/python benchmarks/back_end_runs.py back-ends FOLDER
    .venv/bin/python benchmarks/back_end_advice.py FOLDER
    cephfit lab down --name back-ends
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import yaml

from cephfit.sweep.declaration.sweep_file import read_sweep

SWEEP = Path(__file__).with_name("back_ends.yaml")
WORKLOADS = ("mail", "file-server", "backup")
CONFIGURATIONS = {"iscsi": "iscsi-cache", "nfs": "nfs-async", "swift": "swift-64k"}
"""In addition to the default, by back end."""
BRIEF_ROUNDS = 2
LEFT_OUT = "depth-4"
"""Load that a brief sweep does without: depths between 1 and 32 are interpolated."""
RBD = "rbd"
PROFILES = "profiles"


def cephfit(*arguments: str, images: Path | None = None) -> str:
    """Run a command of cephfit, and return what it prints."""
    argv = [str(Path(sys.executable).with_name("cephfit")), *arguments]
    print("+ cephfit", *arguments, flush=True)
    # Equal work, so that page caches serve the same share of the reads on every back end (docs/evaluation.md).
    of_workloads = {} if images is None else {"CEPHFIT_IMAGES": str(images), "CEPHFIT_EQUAL_WORK": "1"}
    environment = {**os.environ, **of_workloads}
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(done.returncode)  # it has printed why
    return done.stdout


def targets_of(lab: str) -> Mapping[str, str]:
    """Return the targets of a lab by the names of their folders, RBD first."""
    status = json.loads(cephfit("lab", "status", "--name", lab, "--json"))
    return {RBD: f"lab:{lab}"} | {one["name"]: one["target"] for one in status["backends"]}


def chosen(targets: Mapping[str, str], asked: Collection[str]) -> Mapping[str, str]:
    """Return the targets that are asked for by name or as NAME=TARGET, those of the lab in its order; else all."""
    others = dict(one.split("=", 1) for one in asked if "=" in one)
    names = {one for one in asked if "=" not in one}
    if unknown := names - targets.keys():
        sys.exit(f"the lab has no {', '.join(sorted(unknown))}: it has {', '.join(targets)}")
    return {name: target for name, target in targets.items() if not asked or name in names} | others


def brief_sweep(folder: Path) -> Path:
    """Write the sweep with the defaults alone, fewer repeats and fewer depths, and return its path."""
    said = yaml.safe_load(SWEEP.read_text())
    said["configurations"] = {"A": said["configurations"]["A"]}
    said["measurement"]["repeats"] = BRIEF_ROUNDS
    del said["measurement"]["loads"][LEFT_OUT]
    path = folder / SWEEP.name
    path.write_text(yaml.safe_dump(said, sort_keys=False))
    return path


def is_too_late(seconds: Sequence[float], used: float, limit: float) -> bool:
    """Return whether another target, as slow as the slowest so far, would end after the limit.

    Args:
        seconds: that each target took.
        used: seconds since the beginning.
        limit: in seconds.
    """
    return bool(seconds) and used + max(seconds) > limit


def measure(
    name: str, target: str, folder: Path, workloads: Sequence[str], *, sweep: Path, rounds: int, seconds: float
) -> None:
    """Measure a target, unless its evaluation folder is complete; the first target is also recorded."""
    if (folder / name / "measured.csv").exists():
        return
    profiles = folder / PROFILES
    if name != RBD and not profiles.is_dir():
        sys.exit(f"{profiles} is missing: measure {RBD} first, or put profiles of the workloads there")
    store = str(folder / f"{name}.sqlite")
    other = CONFIGURATIONS.get(name)
    configurations = f"A,{other}" if other in {c.name for c in read_sweep(sweep).configurations} else "A"
    finished = folder / f"{name}.measured"
    if not finished.exists():
        cephfit("sweep", "run", str(sweep), "--target", target, "--store", store)
        finished.touch()  # the same command would begin another run
    of_workloads = [word for workload in workloads for word in ("--workload", workload)]
    images = folder / "images"
    images.mkdir(exist_ok=True)
    recorded = ("--traces", str(folder / "traces")) if name == RBD else ()
    cephfit(
        *("evaluate", "--sweep", str(sweep), "--store", store, "--target", target, *of_workloads),
        *("--configurations", configurations, "--rounds", str(rounds), "--seconds", f"{seconds:g}", *recorded),
        images=images,
    )
    profiles.mkdir(exist_ok=True)
    for trace in sorted((folder / "traces").iterdir()) if name == RBD else ():
        files = map(str, sorted(trace.glob("*.blktrace.*")))
        cephfit("trace", "profile", *files, "--name", trace.name, "-o", str(profiles / f"{trace.name}.json"))
    cephfit("assess", store, "--profile", str(profiles), "--export", str(folder / name))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("lab", help="name of a lab that is up")
    arguments.add_argument("folder", type=Path, help="for stores, recordings and evaluation folders")
    arguments.add_argument(
        "--workloads", nargs="+", default=list(WORKLOADS), help="ready ones (docs/workloads.md)"
    )
    arguments.add_argument("--targets", nargs="+", metavar="NAME[=TARGET]", default=[], help="only these")
    arguments.add_argument("--brief", action="store_true", help="only the defaults, two repeats, fewer depths")
    arguments.add_argument("--sweep", type=Path, help="another one")
    arguments.add_argument("--rounds", type=int, help="runs of each workload on each configuration")
    arguments.add_argument("--seconds", type=float, default=6.0, help="of each run, on a lab's RBD")
    arguments.add_argument("--minutes", type=float, default=float("inf"), help="begin no target that ends later")
    asked = arguments.parse_args()
    began = time.monotonic()
    asked.folder.mkdir(parents=True, exist_ok=True)
    folder = asked.folder.resolve()
    sweep = asked.sweep or (brief_sweep(folder) if asked.brief else SWEEP)
    rounds = asked.rounds or (BRIEF_ROUNDS if asked.brief else 3)
    seconds: list[float] = []
    for name, target in chosen(targets_of(asked.lab), asked.targets).items():
        started = time.monotonic()
        if is_too_late(seconds, started - began, 60 * asked.minutes):
            print(f"no time for {name}: the same command measures it later", flush=True)
            continue
        measure(name, target, folder, asked.workloads, sweep=sweep, rounds=rounds, seconds=asked.seconds)
        seconds.append(time.monotonic() - started)
        print(f"{name}: {seconds[-1] / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()

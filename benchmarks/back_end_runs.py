"""Run real workloads on every back end of a lab: writes the folder that `back_end_advice.py` checks.

On each target of the lab (RBD, then iSCSI, NFS, Swift and the local disk, as far as the lab has them) the sweep
`back_ends.yaml` is measured, and the workloads run on the configurations that the target supports. The first run
on RBD's default is recorded: all targets share the profiles. Each target gets an evaluation folder. After an
interrupt, the same command continues. It needs root, and takes hours for three workloads and five targets.

    cephfit lab up --name back-ends --with iscsi,nfs,swift,local
    .venv/bin/python benchmarks/back_end_runs.py back-ends FOLDER
    .venv/bin/python benchmarks/back_end_advice.py FOLDER
    cephfit lab down --name back-ends
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cephfit.sweep.declaration.sweep_file import read_sweep

SWEEP = Path(__file__).with_name("back_ends.yaml")
WORKLOADS = ("mail", "file-server", "backup")
CONFIGURATIONS = {"iscsi": "iscsi-cache", "nfs": "nfs-async", "swift": "swift-64k"}
"""In addition to the default, by back end."""
RBD = "rbd"
PROFILES = "profiles"


def cephfit(*arguments: str, images: Path | None = None) -> str:
    """Run a command of cephfit, and return what it prints."""
    argv = [str(Path(sys.executable).with_name("cephfit")), *arguments]
    print("+ cephfit", *arguments, flush=True)
    environment = {**os.environ, **({} if images is None else {"CEPHFIT_IMAGES": str(images)})}
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(done.returncode)  # it has printed why
    return done.stdout


def targets_of(lab: str) -> Mapping[str, str]:
    """Return the targets of a lab by the names of their folders, RBD first."""
    status = json.loads(cephfit("lab", "status", "--name", lab, "--json"))
    return {RBD: f"lab:{lab}"} | {one["name"]: one["target"] for one in status["backends"]}


def measure(
    name: str, target: str, folder: Path, workloads: Sequence[str], *, sweep: Path, rounds: int, seconds: float
) -> None:
    """Measure a target, unless its evaluation folder is complete; the first target is also recorded."""
    if (folder / name / "measured.csv").exists():
        return
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
    profiles = folder / PROFILES
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
    arguments.add_argument("--targets", nargs="+", metavar="NAME=TARGET", help="instead of those of the lab")
    arguments.add_argument("--sweep", type=Path, default=SWEEP, help="another one, such as with fewer repeats")
    arguments.add_argument("--rounds", type=int, default=3, help="runs of each workload on each configuration")
    arguments.add_argument("--seconds", type=float, default=6.0, help="of each run")
    asked = arguments.parse_args()
    targets = dict(one.split("=", 1) for one in asked.targets) if asked.targets else targets_of(asked.lab)
    asked.folder.mkdir(parents=True, exist_ok=True)
    folder = asked.folder.resolve()
    for name, target in targets.items():
        measure(
            name, target, folder, asked.workloads, sweep=asked.sweep, rounds=asked.rounds, seconds=asked.seconds
        )


if __name__ == "__main__":
    main()

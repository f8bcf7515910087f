"""`cephfit demo`: the whole loop on this machine, with the same commands that a user would type."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from platformdirs import user_data_path, user_state_path

from cephfit.cli.options.common_options import lab_release_option
from cephfit.core.errors import CephfitError, HostError
from cephfit.core.units import format_seconds

_LAB = "demo"


@click.command("demo", short_help="The whole loop on this machine.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the results.  [default: a new one under $XDG_DATA_HOME/cephfit]",
)
@click.option(
    "--sweep",
    "sweep_file",
    default="quick",
    show_default=True,
    help="Path of a sweep file, or name of a bundled sweep.",
)
@click.option(
    "--workload-seconds",
    type=click.IntRange(5),
    default=12,
    show_default=True,
    help="Measured seconds of each run of the workload.",
)
@click.option(
    "--workload-repeats",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    help="Runs of the workload on every configuration of the sweep.",
)
@lab_release_option
@click.option("--keep-lab", is_flag=True, help="Leave the one-machine Ceph running afterwards.")
def command(
    folder: Path | None,
    sweep_file: str,
    workload_seconds: int,
    workload_repeats: int,
    release: str | None,
    keep_lab: bool,
) -> None:
    """From nothing to a verified recommendation: lab up, sweep, trace, map, verify, report, lab down.

    Shows each command as it would be typed by hand. Needs root, because the lab creates loop
    devices. Takes about 25 minutes on two cores; interrupted, it removes the lab and keeps the results.
    """
    if os.geteuid() != 0:
        raise HostError(
            "the demo starts a separate Ceph on loop devices, which needs root",
            remedy="run it as root; without root, `cephfit sweep run quick --target sim` shows the sweep",
        )
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep

    sweep = read_sweep(find_sweep(sweep_file))  # report mistakes in it before a Ceph is started
    started = time.monotonic()
    folder = _result_folder(folder)
    store, profile, trace = folder / "results.sqlite", folder / "profile.json", folder / "trace"
    target = f"lab:{_LAB}"
    trial = ("--workload", "pgbench", "--seconds", str(workload_seconds))
    with _only_demo(), _lab(release, keep=keep_lab):
        _run("sweep", "run", sweep_file, "--target", target, "--store", str(store))
        trace.mkdir()
        _run("trace", "workload", "--target", target, *trial, "-o", str(trace))
        _run("trace", "profile", *map(str, _trace_files(trace)), "--name", "pgbench", "-o", str(profile))
        _run("map", str(profile), "--baselines", str(store))
        _run(
            *("verify", "--sweep", sweep_file, "--store", str(store), "--target", target),
            *("--configurations", ",".join(c.name for c in sweep.configurations)),
            *(*trial, "--equal-work", "--repeats", str(workload_repeats)),
        )
        for name in ("report.html", "report.md", "samples.csv"):
            _run("report", "--store", str(store), "-o", str(folder / name))
    click.echo(f"\nDone in {format_seconds(time.monotonic() - started)}. The report: {folder / 'report.html'}")


def _result_folder(given: Path | None) -> Path:
    """Return an empty folder for results.

    Raises:
        HostError: it cannot be created, or is not empty.
    """
    folder = given or user_data_path("cephfit") / time.strftime("demo-%Y%m%dT%H%M%S")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_used = any(folder.iterdir())
    except OSError as error:
        raise HostError(
            f"the folder cannot be created: {error.strerror}",
            where=str(folder),
            remedy="name another with --folder",
        ) from None
    if is_used:
        raise HostError(
            "the folder is not empty",
            where=str(folder),
            remedy="name another one with --folder; results are never overwritten",
        )
    return folder.resolve()


def _trace_files(folder: Path) -> list[Path]:
    return sorted(f for f in folder.iterdir() if ".blktrace." in f.name)


@contextmanager
def _only_demo() -> Iterator[None]:
    """Hold the lock of the single demo on this machine; the kernel releases it when a demo is killed.

    Raises:
        HostError: another demo is running.
    """
    path = user_state_path("cephfit") / "demo.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostError(
                "another demo is running on this machine",
                where=str(path),
                remedy="wait until it has ended, or stop it with Ctrl-C",
            ) from None
        yield


@contextmanager
def _lab(release: str | None, *, keep: bool) -> Iterator[None]:
    """Create the demo's lab after removing one of a killed demo; remove it at the end, also after an error."""
    from cephfit.lab.registry import lab_names

    if _LAB in lab_names():
        _run("lab", "down", "--name", _LAB)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        _run("lab", "up", "--name", _LAB, *(("--release", release) if release else ()))
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
        if not keep:
            _run("lab", "down", "--name", _LAB)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _run(*arguments: str) -> None:
    """Show a command of cephfit and run it.

    Raises:
        CephfitError: it failed, after printing its error.
    """
    click.secho(f"\n$ cephfit {shlex.join(arguments)}", bold=True)
    status = subprocess.run([sys.executable, "-m", "cephfit.cli.main", *arguments], check=False).returncode
    if status == 130:
        raise KeyboardInterrupt
    if status:
        raise CephfitError(
            f"`cephfit {arguments[0]}` ended with exit code {status}", remedy="its message above states the reason"
        )

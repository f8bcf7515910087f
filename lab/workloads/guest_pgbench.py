"""pgbench inside a guest of a cloud, on its Cinder volume: the counterpart of ``pgbench.py`` for guests.

The guest is rebooted for every run, so that its memory holds no data of earlier runs. It runs the script
``heat/pgbench.sh``, which ``heat/verification.yaml`` also runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

from cephfit.cloud.guests import guest_tracing
from cephfit.cloud.guests.guest_tracing import GuestTrace
from cephfit.core.errors import ClusterError, InputError, LackingError
from cephfit.core.protocols import Client, RunsTogether, WarmsCaches, Workload
from cephfit.core.units import MIB
from cephfit.lab.workloads.pgbench import PgBenchSpec, parse_tps
from cephfit.targets.abilities import RunsGuestJobs

if TYPE_CHECKING:
    from cephfit.cloud.guests.guest_jobs import Answers

_LEAST_MEMORY_NBYTES = 64 * MIB
_LEAST_WAL_NBYTES = 128 * MIB
_WAL_SEGMENT_NBYTES = 32 * MIB
_SLOWEST_LOADING_NBYTES_PER_S = MIB // 4
_PREPARING_SECONDS = 600.0
_WITHOUT_POSTGRESQL = 3
"""Exit code of the script if PostgreSQL is missing."""


def spec_of(scale: int | None) -> PgBenchSpec:
    """Return the specification for guests: as on a cluster, with memory and log scaled to a smaller database.

    The database is larger than the memory at every scale, so that the volume is measured.
    """
    spec = PgBenchSpec(warmup_seconds=10)
    if scale is None or scale >= spec.scale:
        return spec if scale is None else replace(spec, scale=scale)
    part = scale / spec.scale
    wal_nbytes = round(spec.max_wal_nbytes * part / _WAL_SEGMENT_NBYTES) * _WAL_SEGMENT_NBYTES
    return replace(
        spec,
        scale=scale,
        clients=4,
        memory_limit_nbytes=max(_LEAST_MEMORY_NBYTES, round(spec.memory_limit_nbytes * part)),
        max_wal_nbytes=max(_LEAST_WAL_NBYTES, wal_nbytes),
    )


class GuestPgBench(Workload, WarmsCaches, RunsTogether):
    """pgbench inside guests.

    Args:
        guests: where scripts are run.
        spec: how pgbench runs.
        collect: receives a trace of the volume's accesses in the guest for each run; None: no traces are recorded.
    """

    name = "pgbench"
    metric = "tps"

    def __init__(
        self, guests: RunsGuestJobs, spec: PgBenchSpec, *, collect: Callable[[GuestTrace], None] | None = None
    ) -> None:
        self.spec = spec
        self._collect = collect
        self._results_by = ""
        self._guests = guests
        self._to_be_warmed: set[str] = set()

    def description(self) -> Mapping[str, Any]:
        return self.spec.description()

    def warm(self, client: Client) -> None:
        """See ``WarmsCaches``."""
        self._to_be_warmed.add(client.name)

    def prepare(self, client: Client) -> None:
        self.spec.require_room(client)
        seconds = _PREPARING_SECONDS + self.spec.database_nbytes / _SLOWEST_LOADING_NBYTES_PER_S
        script = script_of(self.spec, client, "prepare", run_seconds=0, seed=0)
        output = self._answers([client], {client.name: script}, seconds=seconds).said[client.name].output
        if "CEPHFIT-PREPARED" not in output:
            raise ClusterError(f"the database was not created: {_end_of(output)}", where=f"client {client.name}")

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        (result,) = self.run_together([client], seconds, seeds=[seed])
        return result

    def run_together(
        self, clients: Sequence[Client], seconds: float, *, seeds: Sequence[int]
    ) -> list[tuple[float, Mapping[str, Any]]]:
        """See ``protocols.RunsTogether``: one job per guest, which all begin at the same moment."""
        whole_seconds = max(1, round(seconds))
        steps = {c.name: "warm run" if c.name in self._to_be_warmed else "run" for c in clients}
        self._to_be_warmed -= steps.keys()
        scripts = {
            client.name: script_of(self.spec, client, steps[client.name], run_seconds=whole_seconds, seed=seed)
            for client, seed in zip(clients, seeds, strict=True)
        }
        answers = self._answers(clients, scripts, seconds=whole_seconds + _PREPARING_SECONDS)
        return [self._result(client, answers, seed=seed) for client, seed in zip(clients, seeds, strict=True)]

    def _result(self, client: Client, answers: Answers, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        said, clock = answers.said[client.name], answers.offsets[client.name]
        output = said.output
        if self._collect is not None:
            output, trace = guest_tracing.taken_apart(output)
            self._collect(trace)
        return parse_tps(measured_part(output)), {
            "results_by": said.by,
            "clock": clock.to_json() if clock is not None else None,
            "spec": {**asdict(self.spec), "settings": self.spec.server_settings()},
            "server_version": _marked(output, "SERVER"),
            "database_nbytes": int(_marked(output, "DATABASE-NBYTES")),
            "seed": seed,
            "started_ns": round(float(_marked(output, "STARTED")) * 1e9),
            "finished_ns": round(float(_marked(output, "FINISHED")) * 1e9),
            "output": output,
        }

    def cleanup(self, client: Client) -> None:
        """Do nothing: the script unmounts the file system, and a reboot removes the rest after a failure."""

    def _answers(self, clients: Sequence[Client], scripts: Mapping[str, str], *, seconds: float) -> Answers:
        """Run a script in each guest, all at once, and return the answers.

        Raises:
            LackingError: a guest has no PostgreSQL.
            ClusterError: a script failed.
        """
        before = ""
        if self._collect is not None:
            before = f"CEPHFIT_TRACED=yes\n{guest_tracing.functions(self._results_by)}\n"
        texts = {name: before + script for name, script in scripts.items()}
        answers = self._guests.run_guest_jobs(clients, texts, seconds=seconds)
        for client in clients:
            said = answers.said[client.name]
            self._results_by = said.by
            if said.code == _WITHOUT_POSTGRESQL:
                raise LackingError(
                    "the guests' image has no PostgreSQL",
                    where=f"client {client.name}",
                    remedy="build an image with it: cephfit image build --with postgresql",
                )
            if said.code != 0:
                raise ClusterError(
                    f"pgbench ended with {said.code}: {said.errors or _end_of(said.output)}",
                    where=f"client {client.name}",
                )
        return answers


def script_of(spec: PgBenchSpec, client: Client, steps: str, *, run_seconds: int, seed: int) -> str:
    """Return the shell script of one step: variables for ``heat/pgbench.sh``, and that script."""
    settings = {
        key: value
        for key, value in spec.server_settings().items()
        if key not in ("max_wal_size", "min_wal_size", "max_connections")
    }
    wanted = {
        "DEVICE": _device(client),
        "STEPS": steps,
        "SCALE": spec.scale,
        "CLIENTS": spec.clients,
        "SCRIPT": spec.script,
        "SEED": seed,
        "WARMUP": max(0, round(spec.warmup_seconds)),
        "SECONDS": run_seconds,
        "MEMORY": spec.memory_limit_nbytes,
        "WAL": spec.max_wal_nbytes // MIB,
        "SETTINGS": " ".join(f"{key}={value}" for key, value in settings.items()),
    }
    lines = [f"export CEPHFIT_{key}={shlex.quote(str(value))}" for key, value in wanted.items()]
    text = resources.files("cephfit.heat_templates").joinpath("pgbench.sh").read_text()
    return "\n".join([*lines, text])


def _device(client: Client) -> str:
    if "filename" not in client.fio_options:
        raise InputError(
            "pgbench needs a block device to put a file system on",
            where=f"client {client.name}",
            remedy="choose a target whose clients have devices, such as guests with volumes",
        )
    return client.fio_options["filename"]


def measured_part(output: str) -> str:
    """Return pgbench's output of the measured run, without the warm-up.

    Raises:
        ClusterError: it was not run.
    """
    found = re.search(r"^CEPHFIT-STARTED .*?$(.*)^CEPHFIT-FINISHED ", output, re.M | re.S)
    if found is None:
        raise ClusterError(f"pgbench was not run to its end: {_end_of(output)}")
    return found[1]


def _marked(output: str, mark: str) -> str:
    found = re.search(rf"^CEPHFIT-{mark} (.*)$", output, re.M)
    if found is None:
        raise ClusterError(f"the guest did not report its {mark.lower()}: {_end_of(output)}")
    return found[1].strip()


def _end_of(output: str) -> str:
    return " / ".join(output.strip().splitlines()[-3:]) or "no output"

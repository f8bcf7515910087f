"""A program of the user as the workload that verifies predictions (docs/workloads.md)."""

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from cephfit.core.child_process import run_to_end
from cephfit.core.cleanup import cleaned_up_by
from cephfit.core.errors import ClusterError, InputError, LackingError
from cephfit.core.protocols import Client, KeepOnly, Observe, Workload
from cephfit.core.units import NS_PER_S, format_nbytes, parse_nbytes


def device_of(client: Client, *, what: str) -> Path:
    """Return the block device of a client's volume.

    Args:
        client: with the volume.
        what: the workload in words, such as ``a program``.

    Raises:
        InputError: the volume is no device of this machine.
    """
    if client.device is None:
        raise InputError(
            f"{what} needs a block device on this machine",
            where=f"client {client.name}",
            remedy="choose a target whose clients have devices here, such as the lab or ceph",
        )
    return client.device


def require_nbytes(client: Client, nbytes: int, *, name: str, remedy: str) -> None:
    """Check the size of a client's volume.

    Args:
        client: with the volume.
        nbytes: that the workload needs.
        name: of the workload.
        remedy: for the error, after "use a larger volume, or".

    Raises:
        InputError: the volume is smaller.
    """
    if client.nbytes < nbytes:
        raise InputError(
            f"{name} needs {format_nbytes(nbytes)}, the volume has {format_nbytes(client.nbytes)}",
            where=f"client {client.name}",
            remedy=f"use a larger volume, or {remedy}",
        )


_NOTHING_BETTER = 2
"""Exit code with which a program states that a retry cannot succeed."""

_DESCRIBE_SECONDS = 60.0
_PREPARE_SECONDS = 4 * 3600.0
_CLEANUP_SECONDS = 600.0
_AROUND_RUN_SECONDS = 900.0
"""Allowed time of a run in addition to the measured seconds: start, warm-up, end."""

_MAX_KEPT_CHARS = 64 * 1024
"""The end of a run's output, of this length, is stored with the sample."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_OPERATIONS = "operations"
"""First word of the optional line of a run's output that states how many operations it did."""
_MEASURED = "measured"
"""First word of the optional line of a run's output that states when its measured time began and ended."""
_EXAMPLE = '{"name": "myapp", "metric": "requests/s", "volume": "4G"}'


class ProgramWorkload(Workload):
    """An executable of the user, called with one step: describe, prepare, run or cleanup.

    Args:
        program: path of the executable; its folder is the working directory.
        unmeasured: context manager around the preparation of a volume.
        observe: records each run; then keeps only the measured time.

    Raises:
        InputError: it is not an executable file, does not describe itself, or states that it lacks something.
    """

    def __init__(
        self,
        program: Path,
        *,
        unmeasured: Callable[[], AbstractContextManager[object]] = nullcontext,
        observe: Observe | None = None,
    ) -> None:
        self._program = program.absolute()
        self._unmeasured = unmeasured
        self._observe = observe
        if not program.is_file() or not os.access(program, os.X_OK):
            raise InputError(
                "this program does not exist" if not program.exists() else "this is not an executable file",
                where=f"--workload program:{program}",
                remedy="give the path of an executable file (chmod +x); docs/workloads.md describes its steps",
            )
        self._digest = hashlib.sha256(program.read_bytes()).hexdigest()
        self._described = self._describe()
        self.name = str(self._described["name"])
        self.metric = str(self._described["metric"])
        self.volume_nbytes = parse_nbytes(str(self._described["volume"]), where=f"{program} describe: volume")

    def description(self) -> Mapping[str, Any]:
        return {"version": 1, "program_sha256": self._digest, "described": self._described}

    def prepare(self, client: Client) -> None:
        device = device_of(client, what="a program")
        require_nbytes(
            client, self.volume_nbytes, name=self.name, remedy="a smaller size in the program's `describe`"
        )
        self.cleanup(client)
        with self._unmeasured(), cleaned_up_by(lambda: self.cleanup(client)):
            self._step("prepare", self._environment(device, client), seconds=_PREPARE_SECONDS)

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        device = device_of(client, what="a program")
        environment = {
            **self._environment(device, client),
            "CEPHFIT_SECONDS": str(max(1, round(seconds))),
            "CEPHFIT_SEED": str(seed),
        }
        self.cleanup(client)
        with cleaned_up_by(lambda: self.cleanup(client)), self._observed(device) as keep_only:
            started_ns = time.time_ns()
            output = self._step("run", environment, seconds=seconds + _AROUND_RUN_SECONDS)
            finished_ns = time.time_ns()
        if measured := self._measured(output, started_ns, finished_ns):
            started_ns, finished_ns = measured
            if keep_only is not None:
                keep_only(*measured)
        evidence = {
            "program": str(self._program),
            "program_sha256": self._digest,
            "described": self._described,
            "seed": seed,
            "started_ns": started_ns,
            "finished_ns": finished_ns,
            "output": output[-_MAX_KEPT_CHARS:],
            **self._operations(output),
        }
        return self._value(output), evidence

    def cleanup(self, client: Client) -> None:
        self._step(
            "cleanup", self._environment(device_of(client, what="a program"), client), seconds=_CLEANUP_SECONDS
        )

    def _observed(self, device: Path) -> AbstractContextManager[KeepOnly | None]:
        return nullcontext() if self._observe is None else self._observe(device)

    def _environment(self, device: Path, client: Client) -> dict[str, str]:
        return {
            "CEPHFIT_CLIENT": client.name,
            "CEPHFIT_DEVICE": str(device),
            "CEPHFIT_VOLUME_BYTES": str(client.nbytes),
        }

    def _describe(self) -> dict[str, Any]:
        where = f"{self._program} describe"
        try:
            answer = self._step("describe", {}, seconds=_DESCRIBE_SECONDS)
        except LackingError as error:
            raise InputError(error.what, where=where, remedy=error.remedy) from None
        except ClusterError as error:
            raise InputError(error.what, where=where, remedy=f"it must print JSON such as {_EXAMPLE}") from None
        try:
            described = json.loads(answer, parse_constant=_no_number)
        except ValueError as error:
            raise InputError(
                f"what it prints is no JSON: {error}", where=where, remedy=f"print such as {_EXAMPLE}"
            ) from None
        if not isinstance(described, dict):
            raise InputError("its output is not a JSON object", where=where, remedy=f"print such as {_EXAMPLE}")
        for key in ("name", "metric", "volume"):
            if not isinstance(described.get(key), str) or not described[key]:
                raise InputError(
                    f"{key!r} is missing or not text", where=where, remedy=f"print such as {_EXAMPLE}"
                )
        if not _NAME.fullmatch(described["name"]) or described["name"] == "pgbench":
            raise InputError(
                f"{described['name']!r} cannot be its name",
                where=where,
                remedy="use up to 40 of a to z, 0 to 9, '.', '_' and '-', and another name than pgbench",
            )
        return described

    def _value(self, output: str) -> float:
        last = (output.strip().splitlines() or [""])[-1].strip()
        try:
            value = float(last)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise ClusterError(
                f"its last line is not a number above 0: {last[:80]!r}",
                where=f"{self._program} run",
                remedy=f"print its speed, in {self.metric}, as the last line; more is better",
            )
        return value

    def _operations(self, output: str) -> Mapping[str, float]:
        """Return the number of operations, if the program states it."""
        stated = re.findall(rf"^{_OPERATIONS} ([0-9.]+)$", output, re.M)
        return {_OPERATIONS: float(stated[-1])} if stated else {}

    def _measured(self, output: str, started_ns: int, finished_ns: int) -> tuple[int, int] | None:
        """Return the measured time, if the program states it.

        Args:
            output: of the step.
            started_ns, finished_ns: of the whole step.

        Raises:
            ClusterError: the stated time is not a part of the step's.
        """
        stated = re.findall(rf"^{_MEASURED} ([0-9.]+) ([0-9.]+)$", output, re.M)
        if not stated:
            return None
        begin_ns, end_ns = (round(float(seconds) * NS_PER_S) for seconds in stated[-1])
        if not started_ns <= begin_ns < end_ns <= finished_ns:
            raise ClusterError(
                f"its line '{_MEASURED} {' '.join(stated[-1])}' is not a part of the time in which it ran",
                where=f"{self._program} run",
                remedy="print begin and end in seconds since 1970",
            )
        return begin_ns, end_ns

    def _step(self, step: str, environment: Mapping[str, str], *, seconds: float) -> str:
        """Run one step and return its output.

        Raises:
            ClusterError: it failed, or was killed because it took longer than ``seconds``; with its last lines of
                output.
            LackingError: it cannot be started, or its exit code states that a retry cannot succeed.
        """
        where = f"{self._program} {step}"
        try:
            code, printed, complained = run_to_end(
                [str(self._program), step],
                seconds=seconds,
                where=where,
                environment=environment,
                folder=self._program.parent,
            )
        except OSError as error:
            raise LackingError(
                f"cannot be started: {error.strerror}",
                where=where,
                remedy="use a program that runs on this machine",
            ) from None
        if code != 0:
            words = " / ".join((complained or printed).strip().splitlines()[-3:])[:500] or "no output"
            if code in (_NOTHING_BETTER, 126, 127):
                raise LackingError(
                    f"ended with code {code}: {words}",
                    where=where,
                    remedy="supply what it lacks: by its exit code, a retry cannot succeed",
                )
            raise ClusterError(f"ended with code {code}: {words}", where=where)
        return printed


def _no_number(name: str) -> float:
    """Refuse NaN and Infinity, which are not JSON; NaN is also not equal to itself."""
    raise ValueError(f"{name} is not a number")

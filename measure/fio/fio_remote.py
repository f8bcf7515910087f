"""The engine for many clients: one local fio drives the fio servers at the clients.

``fio --client`` sends each server its client's job, starts all jobs together and returns their results. Its
summary "All clients" is not used. Depending on fio's version, it contains the sum of one client only, no
latencies, or a run time that is the sum of all; it is missing for jobs of several sections
(github.com/axboe/fio, issues 1918 and 1881, and the output of 3.33). fio ignores a client that cannot be reached
or loses its job, and ends with 0; here that is a failure.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cephfit.core.errors import CephfitError, ClusterError
from cephfit.core.protocols import Client
from cephfit.core.values.sample import Metrics
from cephfit.measure.block_device import CounterWatch, in_flight_nbytes
from cephfit.measure.engine import (
    CHECK_STORAGE,
    SLOWEST_NBYTES_PER_S,
    CellOutcome,
    CellRun,
    ClientOutcome,
    CountsIo,
    Engine,
)
from cephfit.measure.fio.fio_files import UnusableOutputError, error_of, read_output, render_job, render_warming
from cephfit.measure.fio.fio_local import GRACE_SECONDS, FioEngine, figures_of
from cephfit.measure.fio.fio_servers import (
    WINDOW_SECONDS,
    Offset,
    ServerClocks,
    ServerOutput,
    drive_servers,
    halves_by_log,
    host_of,
    measured_parts,
    together,
    why_unreachable,
    with_fio_messages,
    with_log,
)

AGGREGATE = "All clients"
"""Name of fio's sum over the clients, which is never used."""
BY_CLIENTS = "by_the_clients_clocks"
_CONNECT_SECONDS = 5.0
MOST_SKEW = 0.1
"""Part of the measured time. Clients that start, or end, further apart did not run together."""


class RemoteFioEngine(Engine):
    """Measures with fio servers at the clients' addresses.

    The local fio ends with the thread that calls ``run``, and stops the servers' jobs first: no job runs after
    ``run`` returns. Only if this machine or its network fails does a server continue to its job's end.

    Args:
        counts: source of independent counts; None where there is none.
        clocks: compares the clients' clocks with this machine's before runs; None where they share its clock.
        grace_seconds: time that a run may take in addition to ramp and run time.
        most_skew: part of the measured time by which clients may start, or end, apart.
    """

    def __init__(
        self,
        counts: CountsIo | None = None,
        *,
        clocks: ServerClocks | None = None,
        grace_seconds: float = GRACE_SECONDS,
        most_skew: float = MOST_SKEW,
    ) -> None:
        self._counts = counts
        self._most_skew = most_skew
        self._grace_seconds = grace_seconds
        self._clocks = clocks

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        return {**FioEngine().facts(), "mode": "client/server"}

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        jobs = {client.name: render_job(replace(run, clients=[client])) for client in run.clients}
        if unreachable := self._unreachable(run.clients):
            return CellOutcome(_none_ran(run.clients, unreachable), None)
        countable, uncounted = self._countable(run.clients)
        offsets: Mapping[str, Offset | None] = {}
        if self._clocks is not None:
            offsets = self._clocks.compared(run.clients)
            jobs = {client.name: with_log(jobs[client.name], client) for client in run.clients}
        seconds = run.measurement.ramp_seconds + run.measurement.run_seconds
        try:
            with TemporaryDirectory(prefix="cephfit-fio-") as folder, self._watch(countable, run) as watch:
                timeout_seconds = seconds + self._grace_seconds
                server_output = drive_servers(
                    run.clients, jobs, timeout_seconds=timeout_seconds, folder=Path(folder)
                )
                parts = measured_parts(Path(folder), run.clients)
                halves = {client.name: halves_by_log(Path(folder), client, run.cell) for client in run.clients}
        except ClusterError as error:  # from the independent count
            return CellOutcome({c.name: ClientOutcome(None, str(error)) for c in run.clients}, None)
        try:
            document = read_output(server_output.output, jobs="client_stats")
            found = jobs_of(document, run.clients)
        except UnusableOutputError as error:
            failure = with_fio_messages(str(error), server_output, "")
            return CellOutcome({c.name: ClientOutcome(None, failure) for c in run.clients}, None)
        simultaneity = {**_together(server_output, len(run.clients)), **_by_guests(parts, offsets, run)}
        outcomes = {
            client.name: _outcome(client, found.get(client.name), run, server_output) for client in run.clients
        }
        run_seconds = run.measurement.run_seconds
        drain = drain_seconds((outcome.metrics for outcome in outcomes.values()), run_seconds)
        doubt = why_not_together(simultaneity, run_seconds, most_skew=self._most_skew, drain=drain)
        for client in run.clients:
            outcome = outcomes[client.name]
            if (metrics := outcome.metrics) is not None:
                outcome = replace(outcome, doubt=doubt, evidence={**outcome.evidence, "together": simultaneity})
                outcome = _counted(outcome, client, run, watch, uncounted)
                found_halves = halves[client.name]
                if found_halves is None and client.name not in uncounted:
                    found_halves = watch.halves(
                        client.name,
                        runtime_ns=metrics.runtime_ns,
                        block_nbytes=run.cell.size.benchmark_nbytes,
                    )
                if found_halves is not None:
                    evidence = {**outcome.evidence, "halves": found_halves.to_json()}
                    outcome = replace(outcome, evidence=evidence)
            outcomes[client.name] = outcome
        # Omit the servers' lines before the document: readers of the store expect JSON.
        return CellOutcome(outcomes, json.dumps(document))

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        if unreachable := self._unreachable(run.clients):
            name, why = next(iter(unreachable.items()))
            raise ClusterError(
                f"client {name} cannot be reached: {why}",
                where=_place_of([client for client in run.clients if client.name == name]),
                remedy="check that its fio server runs and that the network lets this machine reach it",
            )
        jobs = {client.name: render_warming(replace(run, clients=[client])) for client in run.clients}
        largest = max(client.nbytes for client in run.clients)
        timeout_seconds = self._grace_seconds + largest * len(run.clients) / SLOWEST_NBYTES_PER_S
        server_output = drive_servers(run.clients, jobs, timeout_seconds=timeout_seconds)
        try:
            found = jobs_of(read_output(server_output.output, jobs="client_stats"), run.clients)
            read = {name: 0 if error_of(job) else int(job["read"]["io_bytes"]) for name, job in found.items()}
        except UnusableOutputError as error:
            raise ClusterError(
                with_fio_messages(f"the volumes could not be read: {error}", server_output, ""),
                where=_place_of(run.clients),
                remedy=CHECK_STORAGE,
            ) from None
        for client in run.clients:
            if read.get(client.name, 0) < client.nbytes:
                raise ClusterError(
                    with_fio_messages(
                        f"only {read.get(client.name, 0)} of the {client.nbytes} bytes of client {client.name} "
                        "could be read",
                        server_output,
                        host_of(client),
                    ),
                    where=_place_of([client]),
                    remedy=CHECK_STORAGE,
                )

    def _unreachable(self, clients: Sequence[Client]) -> dict[str, str]:
        reasons = {c.name: why_unreachable(c, timeout_seconds=_CONNECT_SECONDS) for c in clients}
        return {name: why for name, why in reasons.items() if why}

    def _countable(self, clients: Sequence[Client]) -> tuple[list[Client], dict[str, str]]:
        """Return the clients with an independent count, and the reason why the others have none."""
        if self._counts is None:
            reason = "the I/O is done on another host, where counters are not read"
            return [], {client.name: reason for client in clients}
        countable, uncounted = [], {}
        for client in clients:
            try:
                self._counts.moved(client)
                countable.append(client)
            except CephfitError as error:
                uncounted[client.name] = error.what
        return countable, uncounted

    def _watch(self, clients: Sequence[Client], run: CellRun) -> CounterWatch[str]:
        counts = self._counts
        if counts is None:
            return CounterWatch({}, run.cell.pattern.op, source=str)
        return CounterWatch(
            {client.name: partial(counts.moved, client) for client in clients},
            run.cell.pattern.op,
            source=lambda _: counts.count_source,
            sampling_seconds=counts.count_seconds,
        )


def _place_of(clients: Sequence[Client]) -> str:
    return ", ".join(str(client.address) for client in clients)


def jobs_of(document: Mapping[str, Any], clients: Sequence[Client]) -> dict[str, Mapping[str, Any]]:
    """Return each client's job result; omits clients without a result, and fio's sum.

    Raises:
        UnusableOutputError: a job that was not requested, two jobs of one client, or one from another host.
    """
    addresses = {client.name: host_of(client) for client in clients}
    jobs: dict[str, Mapping[str, Any]] = {}
    for job in document["client_stats"]:
        name = str(job.get("jobname")) if isinstance(job, dict) else ""
        if name == AGGREGATE:
            continue
        if name not in addresses or name in jobs:
            raise UnusableOutputError(f"fio reports job {name!r} twice, or it was not requested")
        if job.get("hostname") != addresses[name]:
            raise UnusableOutputError(
                f"fio reports the job of client {name} from {job.get('hostname')}, not {addresses[name]}"
            )
        jobs[name] = job
    return jobs


def drain_seconds(metrics: Iterable[Metrics | None], run_seconds: float) -> float:
    """Return the longest wait of a client for I/O in flight at the end of the measured time, which fio counts."""
    return max((found.runtime_ns / 1e9 - run_seconds for found in metrics if found is not None), default=0.0)


def why_not_together(
    together: Mapping[str, Any], run_seconds: float, *, most_skew: float = MOST_SKEW, drain: float = 0.0
) -> str:
    """Return why the clients did not run at the same time; empty if they did, or if it is unknown.

    Args:
        together: skew of their begins and ends.
        run_seconds: measured time.
        most_skew: part of it by which clients may begin, or stop issuing I/O, apart.
        drain: more seconds by which they may end apart, see ``drain_seconds``. An access of 32M to slow disks
            takes seconds. A client that has just begun one ends that much later by chance, and is no straggler.
    """
    by_clients = together.get(BY_CLIENTS) or {}
    for word, end, more in (("began", "start", 0.0), ("ended", "end", max(0.0, drain))):
        # By this machine's clock, and the lower bound by the clients' clocks.
        seen = [together.get(f"{end}_skew_seconds"), by_clients.get(f"{end}_skew_at_least_seconds")]
        skew = max((found for found in seen if found is not None), default=None)
        if skew is not None and skew > most_skew * run_seconds + more:
            return (
                f"the clients did not run together: the last {word} {skew:.2f} s after the first, "
                f"{run_seconds:g} s were measured"
            )
    return ""


def _together(server_output: ServerOutput, n_clients: int) -> dict[str, float | None]:
    """Return the skew of the clients' begins and ends by this machine's clock; None where fio reported none."""

    def skew(moments: Sequence[float]) -> float | None:
        return max(moments) - min(moments) if len(moments) == n_clients else None

    return {"start_skew_seconds": skew(server_output.starts), "end_skew_seconds": skew(server_output.ends)}


def _by_guests(
    parts: Mapping[str, tuple[float, float]], offsets: Mapping[str, Offset | None], run: CellRun
) -> dict[str, Any]:
    """Return the skew by the clients' own clocks; empty unless it is known for all clients."""
    if len(parts) != len(run.clients) or any(offsets.get(client.name) is None for client in run.clients):
        return {}
    began, ended = ({name: part[end] for name, part in parts.items()} for end in (0, 1))
    return {BY_CLIENTS: together(began, ended, offsets, unknown=0.0, slack=WINDOW_SECONDS)}


def _none_ran(clients: Sequence[Client], unreachable: Mapping[str, str]) -> dict[str, ClientOutcome]:
    """Return failures of all clients: without the unreachable ones, the others would run under another load."""
    first = next(iter(unreachable))
    other = f"not run, because client {first} cannot be reached"
    return {c.name: ClientOutcome(None, unreachable.get(c.name, other)) for c in clients}


def _outcome(
    client: Client, job: Mapping[str, Any] | None, run: CellRun, server_output: ServerOutput
) -> ClientOutcome:
    if job is None:
        failure = "its fio server returned no result: the job died, or the connection was lost"
        return ClientOutcome(None, with_fio_messages(failure, server_output, host_of(client)))
    try:
        metrics, evidence = figures_of(job, run)
    except UnusableOutputError as error:
        return ClientOutcome(None, with_fio_messages(str(error), server_output, host_of(client)))
    return ClientOutcome(metrics, evidence={**evidence, "address": client.address, "results_by": "server"})


def _counted(
    outcome: ClientOutcome,
    client: Client,
    run: CellRun,
    watch: CounterWatch[str],
    uncounted: Mapping[str, str],
) -> ClientOutcome:
    assert outcome.metrics is not None, "only a measurement can be counted"
    if client.name in uncounted:
        return replace(outcome, uncounted=uncounted[client.name])
    blocks = run.measurement.iodepth + (1 if run.measurement.is_limited else 0)
    in_flight = in_flight_nbytes(blocks, run.cell.size.benchmark_nbytes)
    count = watch.count(client.name, runtime_ns=outcome.metrics.runtime_ns, in_flight_nbytes=in_flight)
    steadiness = watch.steadiness(client.name, runtime_ns=outcome.metrics.runtime_ns)
    if steadiness is not None:
        outcome = replace(outcome, evidence={**outcome.evidence, "steadiness": steadiness.to_json()})
    return replace(outcome, count=count)

"""fio in guests that nobody can reach: one errand for every cell."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cephfit.errors import ClusterError
from cephfit.protocols import Client
from cephfit.sweep.cloud.errands import Answers, Errands
from cephfit.sweep.engines.engine import (
    LOOK_AT_STORAGE,
    SLOWEST_NBYTES_PER_S,
    CellOutcome,
    CellRun,
    ClientOutcome,
    Engine,
)
from cephfit.sweep.engines.fio import FioEngine, figures_of
from cephfit.sweep.engines.fio_job import render_job, render_warming
from cephfit.sweep.engines.fio_output import UnusableOutputError, error_of, jobs_by_client, read_output
from cephfit.sweep.engines.fio_remote import drain_seconds, why_not_together


class ErrandEngine(Engine):
    """Measures in guests whose jobs go by Nova, and results come by Heat's signals or the console.

    Args:
        errands: brings jobs there and results back.
    """

    def __init__(self, errands: Errands) -> None:
        self._errands = errands

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        return {**FioEngine().facts(), "mode": "signal, else console"}

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        jobs = {c.name: render_job(replace(run, clients=[c])) for c in run.clients}
        seconds = run.measurement.ramp_seconds + run.measurement.run_seconds
        try:
            answers = self._send(run.clients, jobs, seconds=seconds)
        except ClusterError as error:
            return CellOutcome({c.name: ClientOutcome(None, str(error)) for c in run.clients}, None)
        together = answers.together()
        outcomes = {}
        documents = []
        for client in run.clients:
            answer = answers.said[client.name]
            try:
                documents.append(document := read_output(answer.output))
                job = jobs_by_client(document, [client.name])[client.name]
                metrics, evidence = figures_of(job, run)
            except (UnusableOutputError, KeyError) as error:
                outcomes[client.name] = ClientOutcome(None, f"{error}; fio said: {answer.errors or 'nothing'}")
                continue
            evidence = {**evidence, "together": together, "results_by": answer.by}
            uncounted = "there is no independent count between two rebuilds of a guest"
            outcomes[client.name] = ClientOutcome(metrics, uncounted=uncounted, evidence=evidence)
        drain = drain_seconds((outcome.metrics for outcome in outcomes.values()), run.measurement.run_seconds)
        doubt = why_not_together(together, run.measurement.run_seconds, drain=drain)
        for name, outcome in outcomes.items():
            if outcome.metrics is not None:
                outcomes[name] = replace(outcome, doubt=doubt)
        # One document, as of one fio with a job for each client.
        whole = {**documents[0], "jobs": [job for d in documents for job in d["jobs"]]} if documents else None
        return CellOutcome(outcomes, json.dumps(whole) if whole is not None else None)

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        jobs = {c.name: render_warming(replace(run, clients=[c])) for c in run.clients}
        moved = self.moved(run.clients, jobs, "read", max(c.nbytes for c in run.clients))
        for client in run.clients:
            if moved[client.name] < client.nbytes:
                raise ClusterError(
                    f"only {moved[client.name]} of {client.nbytes} bytes could be read",
                    where=f"client {client.name}",
                    remedy=LOOK_AT_STORAGE,
                )

    def moved(self, clients: Sequence[Client], jobs: Mapping[str, str], side: str, nbytes: int) -> dict[str, int]:
        """Run jobs that read or write everything once; bytes by client.

        Raises:
            ClusterError: a guest brought nothing back.
        """
        seconds = nbytes * len(clients) / SLOWEST_NBYTES_PER_S
        answers = self._send(clients, jobs, seconds=seconds, together=False)
        found = {}
        for client in clients:
            said = answers.said[client.name]
            try:
                job = jobs_by_client(read_output(said.output), [client.name])[client.name]
                found[client.name] = 0 if error_of(job) else int(job[side]["io_bytes"])
            except (UnusableOutputError, KeyError) as error:
                raise ClusterError(
                    f"{error}; fio said: {said.errors}", where=f"client {client.name}", remedy=LOOK_AT_STORAGE
                ) from None
        return found

    def _send(
        self, clients: Sequence[Client], jobs: Mapping[str, str], *, seconds: float, together: bool = True
    ) -> Answers:
        scripts = {name: script_of(job) for name, job in jobs.items()}
        return self._errands.send(clients, scripts, seconds=seconds, together=together)


def script_of(job: str) -> str:
    """The shell script that runs a fio job."""
    there = "/tmp/cephfit.fio"
    # What was installed at a guest's first start, a rebuild takes away again.
    without = 'echo "the image has no fio, which guests need that nobody reaches" >&2; exit 127'
    lines = (
        f"cat >{there} <<'CEPHFIT-END'\n{job}\nCEPHFIT-END",
        f"command -v fio >/dev/null || {{ {without}; }}",
        f"exec fio --output-format=json {there}",
    )
    return "\n".join([*lines, ""])

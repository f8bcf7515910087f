"""fio by guest jobs: what becomes of what guests brought back, which way it came, and what a straggler does."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from cephfit.cloud.guests.guest_jobs import CONSOLE, SIGNAL, Answers, JobResult
from cephfit.cloud.guests.guest_transport import GuestJobEngine, script_of
from cephfit.core.protocols import Client
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics
from cephfit.measure.engine import CellRun
from cephfit.measure.fio.fio_servers import Offset
from cephfit.sweep.sweep_plan import Sweep

CLIENTS = [Client(f"c{n}", {"filename": "/dev/cephfit-volume"}, 1 << 20) for n in range(2)]
KNOWN = Offset(-0.05, 0.05)


class Guests:
    """Guest jobs whose guests say what a test gives them."""

    def __init__(self, said: Mapping[str, JobResult]) -> None:
        self.answers = Answers(said, 100.0, dict.fromkeys(said, KNOWN))
        self.jobs: Mapping[str, str] = {}
        self.together: bool | None = None

    def send(
        self, clients: Sequence[Client], jobs: Mapping[str, str], *, seconds: float, together: bool = True
    ) -> Answers:
        self.jobs, self.together = jobs, together
        return self.answers


def said(began: float, *, output: str = "{}", errors: str = "", by: str = SIGNAL) -> JobResult:
    return JobResult(output, errors, began, began + 10, 0, by)


def a_run(sweep: Sweep) -> CellRun:
    measurement = replace(sweep.measurement, run_seconds=10.0)
    return CellRun("A", Cell.parse("4K-randread"), 0, 0, measurement, CLIENTS, {"c0": 1, "c1": 2})


def test_a_job_goes_to_each_guest_as_a_script_of_its_own(small_sweep: Sweep) -> None:
    guests = Guests({"c0": said(100.0), "c1": said(100.0)})
    GuestJobEngine(guests).run(a_run(small_sweep))  # type: ignore[arg-type]
    assert set(guests.jobs) == {"c0", "c1"}
    assert "[c0]" in guests.jobs["c0"]
    assert "[c1]" not in guests.jobs["c0"]
    assert script_of("[c0]\nrw=read\n").endswith("exec fio --output-format=json /tmp/cephfit.fio\n")


def test_guests_wait_for_each_other_to_be_measured_and_not_to_be_filled(small_sweep: Sweep) -> None:
    filled = '{"jobs": [{"jobname": "c0", "error": 0, "write": {"io_bytes": 512}}]}'
    guests = Guests({"c0": said(100.0, output=filled)})
    engine = GuestJobEngine(guests)  # type: ignore[arg-type]
    assert engine.moved(CLIENTS[:1], {"c0": "[c0]\nrw=write\n"}, "write", 512) == {"c0": 512}
    assert guests.together is False
    engine.run(replace(a_run(small_sweep), clients=CLIENTS[:1]))
    assert guests.together is True


def test_what_a_guest_said_besides_is_in_the_failure(small_sweep: Sweep) -> None:
    broken = said(100.0, output="", errors="fio: no such file /dev/cephfit-volume", by=CONSOLE)
    outcome = GuestJobEngine(Guests({"c0": broken, "c1": broken})).run(a_run(small_sweep))  # type: ignore[arg-type]
    assert outcome.fio_json is None
    assert "no such file /dev/cephfit-volume" in outcome.clients["c0"].failure


@pytest.mark.parametrize(("late", "is_doubted"), [(0.5, False), (4.5, True)])
def test_a_guest_that_begins_late_makes_all_samples_invalid(
    small_sweep: Sweep, late: float, is_doubted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cephfit.cloud.guests import guest_transport

    # How fio's figures are read is tested elsewhere.
    known = Metrics(iops=1.0, nbytes_per_s=4096.0, n_ios=10, runtime_ns=10**10, latency_mean_ns=1e6)
    monkeypatch.setattr(guest_transport, "figures_of", lambda job, run: (known, {}))
    texts = {c.name: json.dumps({"fio version": "fio-3.33", "jobs": [{"jobname": c.name}]}) for c in CLIENTS}
    guests = Guests({"c0": said(100.0, output=texts["c0"]), "c1": said(100.0 + late, output=texts["c1"])})
    outcome = GuestJobEngine(guests).run(a_run(small_sweep))  # type: ignore[arg-type]
    for client in CLIENTS:
        given = outcome.clients[client.name]
        assert given.failure == ""
        assert bool(given.doubt) == is_doubted
        assert given.evidence["results_by"] == SIGNAL
        assert given.evidence["together"]["start_skew_seconds"] == pytest.approx(late)

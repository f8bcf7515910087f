"""Answers and runs: the same as the commands give."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from running_server import serving, settled

import cephfit
from cephfit.cli.main import cephfit as command_line

PGBENCH = Path(__file__).resolve().parents[2] / "docs" / "examples" / "profiles" / "pgbench.json"


@pytest.fixture(scope="module")
def workload(server: object) -> str:
    with httpx.Client(base_url=server.url) as client:  # type: ignore[attr-defined]
        found = settled(client, client.post("/api/workloads", files={"file": ("p.json", PGBENCH.read_bytes())}))
    assert found["state"] == "ready", found["error"]
    return str(found["id"])


def mapped(store: Path, *options: str) -> dict[str, object]:
    arguments = ["map", str(PGBENCH), "--baselines", str(store), "--no-save", "--json", *options]
    done = CliRunner().invoke(command_line, arguments, catch_exceptions=False)
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_the_answer_is_that_of_map(client: httpx.Client, workload: str, simulated_store: Path) -> None:
    answer = client.get(f"/api/workloads/{workload}/answer")
    assert answer.json() == mapped(simulated_store)
    several = client.get(f"/api/workloads/{workload}/answer?objective=throughput&objective=p99&model=time")
    objectives = ("--objective", "throughput", "--objective", "p99", "--model", "time")
    assert several.json() == mapped(simulated_store, *objectives)


def test_the_page_shows_the_first_lines_of_map(client: httpx.Client, workload: str, simulated_store: Path) -> None:
    done = CliRunner().invoke(
        command_line, ["map", str(PGBENCH), "--baselines", str(simulated_store), "--no-save"]
    )
    page = client.get(f"/workloads/{workload}?baselines=store&objective=latency").text.replace("&#39;", "'")
    lines = done.stdout.splitlines()
    assert lines[0] in page  # does it fit?
    assert next(line for line in lines if line.startswith("Best: ")) in page
    for p in mapped(simulated_store)["predictions"]:  # type: ignore[attr-defined]
        assert f'<th scope="row">{p["configuration"]}</th>' in page


def test_an_uploaded_csv_answers_as_the_same_file_on_the_command_line(
    client: httpx.Client, workload: str, simulated_store: Path, tmp_path: Path
) -> None:
    path = tmp_path / "figures.csv"
    arguments = ["report", "--store", str(simulated_store), "-o", str(path), "--what", "baselines"]
    assert CliRunner().invoke(command_line, arguments).exit_code == 0
    assert client.get(f"/api/workloads/{workload}/answer?baselines=csv").status_code == 409
    sent = client.post(f"/api/workloads/{workload}/baselines", files={"file": ("f.csv", path.read_bytes())})
    assert sent.status_code == 204
    answer = client.get(f"/api/workloads/{workload}/answer?baselines=csv").json()
    assert answer["predictions"] == mapped(path)["predictions"]
    assert "/" not in answer["baselines"], "the path of the server is not shown"
    bad = client.post(f"/api/workloads/{workload}/baselines", files={"file": ("f.csv", b"a,b\n1,2\n")})
    assert bad.status_code == 204
    assert client.get(f"/api/workloads/{workload}/answer?baselines=csv").status_code == 422


def test_wrong_questions_are_refused_in_words(client: httpx.Client, workload: str) -> None:
    path = f"/api/workloads/{workload}/answer"
    for query in ("run=none", "load=none", "model=none", "objective=cost", "confidence=2", "run=' OR 1=1 --"):
        answer = client.get(f"{path}?{query}")
        assert (query, answer.status_code) == (query, 422)
        assert answer.json()["error"]["what"]
    assert client.get(f"/workloads/{workload}?baselines=store&run=none").status_code == 422


def test_nothing_is_written_into_the_store(client: httpx.Client, workload: str, simulated_store: Path) -> None:
    client.get(f"/api/workloads/{workload}/answer")
    with cephfit.open_store(str(simulated_store)) as store:
        (run,) = store.runs()
    assert client.get(f"/api/runs/{run.run_id}").json()["saved"] == {}


def test_the_runs_are_those_of_runs_list_and_show(client: httpx.Client, simulated_store: Path) -> None:
    listed = CliRunner().invoke(command_line, ["runs", "list", "--store", str(simulated_store), "--json"])
    assert client.get("/api/runs").json() == json.loads(listed.stdout)
    run = client.get("/api/runs").json()[0]["run"]
    shown = CliRunner().invoke(command_line, ["runs", "show", run, "--store", str(simulated_store), "--json"])
    assert client.get(f"/api/runs/{run}").json() == json.loads(shown.stdout)
    assert client.get("/api/runs/none").status_code == 404
    assert client.get("/runs/none").status_code == 404


@pytest.mark.slow
def test_a_sweep_of_another_process_is_seen_while_it_runs(tmp_path: Path) -> None:
    """The store does not exist at the start; samples appear, also those that failed, with reasons."""
    store = tmp_path / "live.sqlite"
    with serving(store, tmp_path) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/api/runs").status_code == 404
        assert '<p class="fault">' in client.get("/").text
        command = [sys.executable, "-m", "cephfit.cli.main", "sweep", "run", "quick", "--store", str(store)]
        command += ["--target", "sim:pace=0.001,unhealthy=0.1"]
        seen: set[int] = set()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as sweep:
            while sweep.poll() is None:
                for run in client.get("/api/runs").json() if store.exists() else []:
                    if isinstance(run, dict):
                        seen.add(client.get(f"/api/runs/{run['run']}/progress").json()["samples"]["measured"])
        (run,) = client.get("/api/runs").json()
        assert (run["finished"], run["samples"]["measured"]) == (True, run["samples"]["planned"])
        assert len(seen) > 2, "samples were seen as they came"
        progress = client.get(f"/api/runs/{run['run']}/progress").json()
        assert progress["voided"][0]["state"] == "invalid"
        assert progress["voided"][0]["reason"] in client.get(f"/runs/{run['run']}").text

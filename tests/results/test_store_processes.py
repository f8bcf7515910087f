"""Several processes at one store, and processes that are killed."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from example_run import RUN_ID, example_run

from cephfit.core.values.cells import CELLS
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results.store import schema
from cephfit.results.store.sample_store import Store

PROCESSES = multiprocessing.get_context("spawn")
CLIENTS = tuple(f"c{i}" for i in range(6))


def group(configuration: str, repeat: int) -> list[Sample]:
    """The samples of one fio run on all clients."""
    metrics = Metrics(1.0, 4096.0, 2, 2, 1.0)
    keys = [SampleKey(configuration, CELLS[0], client, repeat) for client in CLIENTS]
    return [Sample(key, State.OK, metrics, 1, 2, "", {"filler": "x" * 2000}) for key in keys]


def write(path: Path, configuration: str, n: int) -> None:
    with Store.open(path, create=True) as store:
        for repeat in range(n):
            store.add_samples(RUN_ID, group(configuration, repeat), fio_json="{}" * 500)


def write_and_die_inside(path: Path) -> None:
    """Killed after the third sample of a group went to the database and before the fourth does."""
    whole_row = schema.sample_row
    seen = 0

    def row_or_death(sample: Sample) -> dict[str, Any]:
        nonlocal seen
        seen += 1
        if seen == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole_row(sample)

    schema.sample_row = row_or_death
    with Store.open(path) as store:
        store.add_samples(RUN_ID, group("B", 0), fio_json="{}")


def open_new(path: Path) -> None:
    Store.open(path, create=True).close()


def test_two_processes_write_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store.open(path, create=True) as store:
        store.add_run(example_run())
    writers = [PROCESSES.Process(target=write, args=(path, name, 40)) for name in ("A", "B")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    with Store.open(path) as store:
        samples = store.samples(RUN_ID)
    assert len(samples) == len({s.key for s in samples}) == 2 * 40 * len(CLIENTS)


def test_several_processes_make_the_same_store_at_the_same_time(tmp_path: Path) -> None:
    makers = [PROCESSES.Process(target=open_new, args=(tmp_path / "new.db",)) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
        assert maker.exitcode == 0
    with Store.open(tmp_path / "new.db") as store:
        assert store.runs() == []


def test_sigkill_in_the_middle_of_add_samples_leaves_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store.open(path, create=True) as store:
        store.add_run(example_run())
        store.add_samples(RUN_ID, group("A", 0), fio_json="{}")
        writer = PROCESSES.Process(target=write_and_die_inside, args=(path,))
        writer.start()
        writer.join(60)
        assert writer.exitcode == -signal.SIGKILL
        assert store.samples(RUN_ID) == group("A", 0)
        store.add_samples(RUN_ID, group("B", 0), fio_json="{}")  # and it goes on
        assert store.samples(RUN_ID) == group("A", 0) + group("B", 0)


def test_sigkill_at_any_moment_leaves_all_samples_of_a_fio_run_or_none(tmp_path: Path) -> None:
    """Every transaction that was acknowledged is there; the one that was cut short is not there at all."""
    path = tmp_path / "results.db"
    with Store.open(path, create=True) as store:
        store.add_run(example_run())
    rng = random.Random(8)
    killed_while_writing = 0
    for attempt in range(6):
        name = f"B{attempt}"
        writer = PROCESSES.Process(target=write, args=(path, name, 100_000))
        writer.start()
        deadline = time.monotonic() + 30
        with Store.open(path) as store:
            while not any(s.key.configuration == name for s in store.samples(RUN_ID)):
                assert time.monotonic() < deadline, "the writer never began"
                time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.05))
        with Store.open(path) as store:
            acknowledged = {s.key for s in store.samples(RUN_ID)}
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join(10)
        killed_while_writing += writer.exitcode == -signal.SIGKILL
        with Store.open(path) as store:
            samples = store.samples(RUN_ID)
        keys = {s.key for s in samples}
        assert acknowledged <= keys and len(keys) == len(samples)
        runs: dict[tuple[str, int], set[str]] = {}
        for key in keys:
            runs.setdefault((key.configuration, key.repeat), set()).add(key.client)
        assert all(clients == set(CLIENTS) for clients in runs.values())
        repeats = sorted(repeat for configuration, repeat in runs if configuration == name)
        assert repeats == list(range(len(repeats)))
    assert killed_while_writing == 6

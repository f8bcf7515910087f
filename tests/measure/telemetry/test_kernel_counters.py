"""CPU time by layer: which thread belongs to which layer, and that the layers add up to the busy time."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from cephfit.ceph.host import LocalHost
from cephfit.core.values.sample import CpuLayer
from cephfit.measure.telemetry import kernel_counters
from cephfit.measure.telemetry.kernel_counters import (
    WHOLE,
    CpuTime,
    ThreadCounters,
    cpu_by_layer,
    cpu_of_threads,
    layer_of,
    without_other_clusters,
)

OSD, QEMU = "ceph-osd", "qemu-storage-da"


@pytest.mark.parametrize(
    ("program", "thread", "layer"),
    [
        (OSD, "msgr-worker-2", CpuLayer.MESSENGER),
        (OSD, "ms_dispatch", CpuLayer.MESSENGER),
        (OSD, "tp_osd_tp", CpuLayer.OPS),
        (OSD, "bstore_kv_sync", CpuLayer.STORE),
        (OSD, "bstore_aio", CpuLayer.STORE),
        (OSD, "rocksdb:low0", CpuLayer.STORE),
        (OSD, "cfin", CpuLayer.STORE),
        (OSD, "tp_fstore_op", CpuLayer.STORE),
        (OSD, "safe_timer", CpuLayer.OSD_REST),
        (OSD, "", CpuLayer.OSD_REST),
        ("ceph-mon", "rocksdb:low0", CpuLayer.MONITORS),
        ("ceph-mgr", "msgr-worker-0", CpuLayer.MONITORS),
        (QEMU, "msgr-worker-0", CpuLayer.LIBRBD),
        (QEMU, "io_context_pool", CpuLayer.LIBRBD),
        (QEMU, "qemu-storage-da", CpuLayer.CLIENT_BLOCK),
        ("qemu-system-x86", "CPU 0/KVM", CpuLayer.CLIENT_BLOCK),
        ("ganesha.nfsd", "svc_12", CpuLayer.SERVER),
        ("swift-object-se", "swift-object-se", CpuLayer.SERVER),
        ("nbdkit", "nbdkit", CpuLayer.CLIENT_BLOCK),
        ("postgres", "postgres", CpuLayer.OTHER),
    ],
)
def test_a_thread_belongs_to_a_layer_by_its_name_and_its_program(program: str, thread: str, layer: CpuLayer):
    assert layer_of(program, thread) is layer


def test_a_kernel_thread_is_known_by_its_flag_and_not_by_its_name():
    text = "/proc/9/stat:9 (ceph-osd) S 2 0 0 0 -1 {} 0 0 0 0 0 100 0 0"
    kernel = kernel_counters.parse_threads(text.format(0x00200040))[9, WHOLE]
    assert layer_of(kernel.name, kernel.name, is_kernel=kernel.is_kernel) is CpuLayer.KERNEL
    assert not kernel_counters.parse_threads(text.format(0x00400040))[9, WHOLE].is_kernel


def test_workers_of_the_kernel_are_one_thread_whatever_their_last_work_was():
    text = "/proc/9/task/9/stat:9 (kworker/u8:3-loop4) S 2 0 0 0 -1 2129984 0 0 0 0 0 100 0 0"
    assert kernel_counters.parse_threads(text)[9, 9].name == "kworker"


def thread(name: str, user: float, system: float = 0.0) -> ThreadCounters:
    return ThreadCounters(name, CpuTime(user, system))


def test_the_time_of_ended_threads_stays_with_their_program():
    before = {(7, WHOLE): thread(OSD, 10.0), (7, 7): thread(OSD, 1.0), (7, 8): thread("tp_osd_tp", 5.0)}
    after = {
        (7, WHOLE): thread(OSD, 14.0),
        (7, 7): thread(OSD, 1.0),
        (7, 8): thread("tp_osd_tp", 6.5),
        (7, 9): thread("msgr-worker-0", 0.5),
    }
    used = cpu_of_threads(before, after)
    assert {layer: one.total for layer, one in used.items() if one.total} == {
        CpuLayer.OPS: 1.5,
        CpuLayer.MESSENGER: 0.5,
        CpuLayer.OSD_REST: 2.0,
    }


def test_a_new_process_with_an_old_id_has_used_all_of_its_time():
    used = cpu_of_threads({(7, 7): thread("x", 90.0)}, {(7, WHOLE): thread("x", 2.0), (7, 7): thread("x", 2.0)})
    assert used[CpuLayer.OTHER] == CpuTime(2.0, 0.0)


def test_daemons_of_another_cluster_on_the_machine_are_other_programs():
    threads = {
        (7, WHOLE): thread(OSD, 4.0),
        (7, 8): thread("tp_osd_tp", 4.0),
        (9, WHOLE): thread(OSD, 3.0),
        (9, 9): thread("tp_osd_tp", 3.0),
        (11, WHOLE): thread("postgres", 1.0),
    }
    asked: list[int] = []
    used = cpu_of_threads(
        {}, without_other_clusters(threads, lambda process: asked.append(process) or process == 9)
    )
    assert {layer: one.total for layer, one in used.items() if one.total} == {
        CpuLayer.OPS: 3.0,
        CpuLayer.OTHER: 5.0,
    }
    assert asked == [7, 9], "only Ceph's programs are looked at"


def layers(busy: float, interrupts: float, stolen: float = 0.0, wall: float = 2.0) -> dict[str, float]:
    found = cpu_by_layer(
        {CpuLayer.OPS: CpuTime(3.0, 1.0)},
        benchmark=CpuTime(1.0, 1.0),
        busy_seconds=busy,
        interrupt_seconds=interrupts,
        stolen_seconds=stolen,
        io_seconds=2.0,
        wall_seconds=wall,
    )
    return {layer: one["user"] + one["system"] for layer, one in found.items()}


def test_the_layers_add_up_to_the_busy_time():
    found = layers(busy=10.0, interrupts=1.5, stolen=0.5)
    assert found == {
        "benchmark program": 1.0,
        "interrupts and network": 0.75,
        "OSD op threads": 2.0,
        "other programs": 1.0,
        "taken by the hypervisor": 0.25,
    }
    assert sum(found.values()) == 10.0 / 2


def test_programs_without_a_part_in_the_io_also_ran_before_and_after_it():
    found = layers(busy=14.0, interrupts=0.0, wall=4.0)
    assert found["OSD op threads"] == 2.0, "4 s in 2 s of I/O"
    assert found["other programs"] == 2.0, "8 s in 4 s"


def test_interrupts_that_the_kernel_also_counts_for_threads_are_counted_once():
    assert layers(busy=6.5, interrupts=2.0)["interrupts and network"] == 0.25
    assert "interrupts and network" not in layers(busy=6.0, interrupts=2.0)


def test_the_command_for_other_hosts_lists_the_same_threads() -> None:
    listed = kernel_counters.parse_threads(LocalHost().run(kernel_counters._THREADS).stdout)
    read = kernel_counters.counters_of_host(LocalHost()).threads
    own = os.getpid()
    assert {key for key in listed if key[0] == own} == {key for key in read if key[0] == own}
    assert listed[own, WHOLE].name == read[own, WHOLE].name
    # Other programs may begin and end in between.
    assert len(listed.keys() & read.keys()) > 0.8 * len(listed)


def test_a_process_may_end_while_its_threads_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir
    with subprocess.Popen(["sleep", "60"]) as child:

        def scandir(folder: os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
            if str(folder) == f"/proc/{child.pid}/task":
                child.kill()
                child.wait()
            return listed(folder)

        monkeypatch.setattr(os, "scandir", scandir)
        processes = kernel_counters.counters_of_host(LocalHost()).processes
    assert child.returncode == -signal.SIGKILL
    assert os.getpid() in processes
    assert child.pid not in processes


def test_a_busy_thread_of_this_process_is_seen():
    before = kernel_counters.counters_of_host(LocalHost())
    begun = time.thread_time()

    def work() -> None:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    after = kernel_counters.counters_of_host(LocalHost())
    used = cpu_of_threads(before.threads, after.threads)
    assert used[CpuLayer.OTHER].total >= 0.28, "the thread has ended, and its time is still its program's"
    assert time.thread_time() - begun < used[CpuLayer.OTHER].total
    assert before.own_children is not None and after.own_children is not None
    assert after.own_children[1].total >= after.own_children[0].total >= before.own_children[1].total


def test_the_cpus_of_this_machine_are_those_of_all_its_counters() -> None:
    before, n_cpus = kernel_counters.cpus_of_this_machine()
    counters = kernel_counters.counters_of_host(LocalHost())
    after, _ = kernel_counters.cpus_of_this_machine()
    assert n_cpus == counters.n_cpus
    # Ticks of the CPUs are not counted at the same moment.
    assert before - 0.05 <= counters.cpu_busy_seconds <= after + 0.05

"""One contract for every way of administering Ceph, on a real cluster."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rest_server import rest_api

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.admin.fallback_admins import BinaryAdmin, RestAdmin
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin
from cephfit.lab.cluster import Lab

pytestmark = [pytest.mark.ceph, pytest.mark.root]

Opener = Callable[..., CephAdmin]


@pytest.fixture(params=["librados", "ceph program", "REST"])
def opener(request: pytest.FixtureRequest) -> Iterator[Opener]:
    if request.param != "REST":
        yield {"librados": RadosAdmin, "ceph program": BinaryAdmin}[request.param]
        return
    with ExitStack() as servers:

        def open_rest(conf: Path, *, timeout_seconds: float) -> CephAdmin:
            # As its people run it: the server is up before any request, and its time limits are longer.
            url = servers.enter_context(rest_api(conf, timeout_seconds=timeout_seconds + 2))
            return RestAdmin(url, timeout_seconds=timeout_seconds)

        yield open_rest


@pytest.fixture(params=[RadosAdmin, BinaryAdmin], ids=["librados", "ceph program"])
def opener_by_file(request: pytest.FixtureRequest) -> Opener:
    """The ways that begin with a ceph.conf."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def admin(opener: Opener, lab_cluster: Lab) -> Iterator[CephAdmin]:
    admin = opener(lab_cluster.conf, timeout_seconds=20)
    yield admin
    admin.close()


def test_a_command_answers_parsed_json(admin: CephAdmin) -> None:
    assert admin.command("config help", key="osd_max_backfills")["type"] == "uint"


def test_a_command_that_answers_nothing_gives_none(admin: CephAdmin) -> None:
    assert admin.command("config set", who="osd", name="osd_max_pgls", value="512") is None
    assert admin.command("config rm", who="osd", name="osd_max_pgls") is None


def test_maps_are_read_and_written_as_bytes(admin: CephAdmin) -> None:
    crush_map = admin.exchange("osd getcrushmap")
    assert crush_map.startswith((0x00010000).to_bytes(4, "little")), "the magic number of a CRUSH map"
    admin.exchange("osd setcrushmap", crush_map)
    assert admin.exchange("osd getcrushmap") == crush_map
    with pytest.raises(RefusedError):
        admin.exchange("osd setcrushmap", b"no map at all")


def test_a_command_that_the_manager_serves(admin: CephAdmin) -> None:
    assert admin.command("osd df")["summary"]["total_kb"] > 0


@pytest.mark.parametrize("kind", ["osd", "mon", "mgr"])
def test_daemons_get_commands(admin: CephAdmin, lab_cluster: Lab, kind: str) -> None:
    name = next(d.name for d in lab_cluster.status().daemons if d.name.startswith(kind))
    if isinstance(admin, RestAdmin) and kind != "osd":
        with pytest.raises(RefusedError, match="reaches only OSDs and the monitors as one"):
            admin.tell(name, "config get", var="osd_max_pgls")
        return
    assert admin.tell(name, "config get", var="osd_max_pgls") == {"osd_max_pgls": "1024"}


def test_a_flag_confirms(admin: CephAdmin) -> None:
    admin.command("osd pool create", pool="contract", pg_num=1, pgp_num=1, pool_type="replicated", rule="hdd")
    try:
        admin.command("osd pool set", pool="contract", var="size", val="1", yes_i_really_mean_it=True)
        assert admin.command("osd pool get", pool="contract", var="size")["size"] == 1
    finally:
        admin.command("config set", who="mon", name="mon_allow_pool_delete", value="true")
        admin.command("osd pool rm", pool="contract", pool2="contract", yes_i_really_really_mean_it=True)
        admin.command("config rm", who="mon", name="mon_allow_pool_delete")


def test_a_refusal_is_in_cephs_own_words(admin: CephAdmin) -> None:
    with pytest.raises(RefusedError, match=r"unrecognized config option 'osd_op_threads' \[EINVAL\]") as refused:
        admin.command("config set", who="osd", name="osd_op_threads", value="3")
    assert refused.value.where == "mon"
    with pytest.raises(RefusedError, match=r"unrecognized pool 'nowhere' \[ENOENT\]"):
        admin.command("osd pool get", pool="nowhere", var="size")


def test_a_daemon_that_is_not_there(admin: CephAdmin) -> None:
    with pytest.raises(ClusterError, match=r"osd\.77"):
        admin.tell("osd.77", "config get", var="osd_max_pgls")


def test_several_threads_may_ask_at_once(admin: CephAdmin) -> None:
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda: answers.append(admin.command("config help", key="osd_max_pgls")["name"]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["osd_max_pgls"] * 4


def test_no_monitor_is_a_clear_error_within_a_bounded_time(
    opener_by_file: Opener, lab_cluster: Lab, tmp_path: Path
) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text(f"[global]\nmon_host = [v2:127.0.0.1:9/0]\nkeyring = {lab_cluster.keyring}\n")
    started = time.monotonic()
    with pytest.raises(ClusterError, match=r"no connection|not answered in time"):
        opener_by_file(conf, timeout_seconds=2).command("status")
    assert time.monotonic() - started < 8


def stands_still(pid: int) -> bool:
    """Whether every thread of a process is stopped."""
    threads = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(thread.rpartition(")")[2].split()[0] == "T" for thread in threads)


def test_a_monitor_that_hangs_is_given_up_in_time(opener: Opener, lab_cluster: Lab) -> None:
    admin = opener(lab_cluster.conf, timeout_seconds=2)
    monitor = next(d for d in lab_cluster.status().daemons if d.name.startswith("mon"))
    assert monitor.pid is not None
    os.kill(monitor.pid, signal.SIGSTOP)
    try:
        while not stands_still(monitor.pid):  # each of its threads stops when it is scheduled next
            time.sleep(0.01)
        started = time.monotonic()
        with pytest.raises(ClusterError, match="not answered in time"):
            admin.command("status")
        assert time.monotonic() - started < 8
    finally:
        os.kill(monitor.pid, signal.SIGCONT)
        admin.close()


def test_a_missing_configuration_file_is_named(opener_by_file: Opener, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="this Ceph configuration file does not exist") as error:
        opener_by_file(tmp_path / "missing.conf")
    assert error.value.where.endswith("missing.conf")


def test_no_secret_among_the_arguments(lab_cluster: Lab) -> None:
    secret = next(
        line.split("=", 1)[1].strip() for line in lab_cluster.keyring.read_text().splitlines() if "key =" in line
    )
    assert secret not in " ".join(BinaryAdmin(lab_cluster.conf)._start)


def test_lists_and_numbers_are_arguments_too(admin: CephAdmin) -> None:
    admin.command("osd add-noout", ids=["0", "1"])
    try:
        states = {o["osd"]: o["state"] for o in admin.command("osd dump")["osds"]}
        assert ["noout" in states[osd] for osd in (0, 1, 2)] == [True, True, False]
    finally:
        admin.command("osd rm-noout", ids=["0", "1"])
    assert admin.command("pg ls-by-osd", osd=0)["pg_stats"]


def test_a_missing_rest_server_is_a_clear_error() -> None:
    with pytest.raises(ClusterError, match="no connection to ceph-rest-api") as error:
        RestAdmin("http://127.0.0.1:9/api/v0.1", timeout_seconds=2).command("status")
    assert error.value.where == "http://127.0.0.1:9/api/v0.1/"


def test_confirmations_as_clusters_before_nautilus_want_them(lab_cluster: Lab) -> None:
    with rest_api(lab_cluster.conf, flags_as_choices=True) as url:
        admin = RestAdmin(url)
        admin.command("osd pool create", pool="old", pg_num=1, pgp_num=1, pool_type="replicated", rule="hdd")
        try:
            admin.command("osd pool set", pool="old", var="size", val="1", yes_i_really_mean_it=True)
            assert admin.command("osd pool get", pool="old", var="size")["size"] == 1
        finally:
            admin.command("osd pool rm", pool="old", pool2="old", yes_i_really_really_mean_it=True)
        assert "old" not in admin.command("osd pool ls")
        admin.close()

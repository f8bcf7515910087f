"""Clusters before Nautilus: answers in the shapes of 12.2 and 13.2, by Ceph's sources of then."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from cephfit.ceph.admin import fallback_admins
from cephfit.ceph.admin.answers import (
    RefusedError,
    as_before_nautilus,
    drop_osd_caches,
    is_before_nautilus,
    listed_pgs,
    refusal,
    require_luminous,
    stored_nbytes,
    why_no_cache_drop,
)
from cephfit.ceph.admin.daemons import AdminSockets, Daemon
from cephfit.ceph.admin.fallback_admins import BinaryAdmin
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.delivery.client_conf import ClientAccess, render_client_conf
from cephfit.ceph.delivery.daemon_values import DaemonValues
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.pools.pool_plan import PoolPlan, Role
from cephfit.ceph.pools.pool_readback import await_placed, read_back_pools
from cephfit.core.errors import ClusterError
from cephfit.core.values.configuration import Configuration, Partition, Setting

LUMINOUS = "ceph version 12.2.13 (584a20eb0237c657dc0567da126be145106aa47e) luminous (stable)"
MON_DUMP = {
    "epoch": 1,
    "fsid": "6d5b3c1e-8a4e-4c58-9c0f-3f8a4d7ad0b1",
    "mons": [
        {"rank": 0, "name": "a", "addr": "10.0.0.1:6789/0", "public_addr": "10.0.0.1:6789/0"},
        {"rank": 1, "name": "b", "addr": "[fd00::2]:6789/0", "public_addr": "[fd00::2]:6789/0"},
    ],
}
POOL = {
    "pool": 1, "pool_name": "cephfit-ec", "flags_names": "hashpspool,ec_overwrites", "size": 6, "min_size": 5,
    "pg_num": 2, "pg_placement_num": 2, "crush_rule": 1, "erasure_code_profile": "cephfit-ec",
}  # fmt: skip
PGS = [
    {
        "pgid": f"1.{n}", "version": "0'0", "reported_seq": "17", "reported_epoch": "23", "state": "active+clean",
        "up": [2, 0, 1, 3, 4, 5], "acting": [2, 0, 1, 3, 4, 5], "up_primary": 2, "acting_primary": 2,
        "stat_sum": {"num_bytes": 0, "num_objects": 0, "num_objects_degraded": 0, "num_objects_misplaced": 0},
    }
    for n in range(2)
]  # fmt: skip


class Luminous:
    """Answers of 12.2.13; what it does not know it refuses as that release does."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "version": {"version": LUMINOUS},
            "mon dump": MON_DUMP,
            "osd dump": {"epoch": 23, "pools": [POOL], "osds": [{"osd": 0, "up": 1}, {"osd": 1, "up": 1}]},
            "pg ls-by-pool": PGS,
            "osd erasure-code-profile get": {"k": "4", "m": "2", "plugin": "jerasure"},
        }

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        if prefix == "osd pool get" and arguments["var"] == "allow_ec_overwrites":
            raise refusal("mon", prefix, errno.EINVAL, "invalid command")
        if prefix == "osd pool get":
            return {arguments["var"]: POOL[arguments["var"]]}
        if prefix not in self.answers:
            raise refusal("mon", prefix, errno.EINVAL, "command not known")
        return self.answers[prefix]

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        if prefix == "get_command_descriptions":
            return {
                "cmd000": {"sig": ["injectargs", {"name": "injected_args", "type": "CephString", "n": "N"}]},
                "cmd001": {"sig": ["flush_pg_stats"]},
            }
        raise refusal(daemon, prefix, errno.EINVAL, "unrecognized command! [" + prefix + "]")

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        raise AssertionError("nothing binary here")

    def close(self) -> None:
        pass


def test_monitors_have_one_address() -> None:
    text = render_client_conf(
        Configuration("A"), Luminous(), access=ClientAccess("admin", "/k"), socket_folder=Path("/run/x")
    )
    assert "mon_host = 10.0.0.1:6789 [fd00::2]:6789\n" in text


def test_monitors_of_later_releases_have_several() -> None:
    addrvec = [
        {"type": "v2", "addr": "10.0.0.1:3300", "nonce": 0},
        {"type": "v1", "addr": "10.0.0.1:6789", "nonce": 0},
    ]
    later = Luminous()
    later.answers = {"mon dump": {"fsid": "x", "mons": [{"name": "a", "public_addrs": {"addrvec": addrvec}}]}}
    text = render_client_conf(
        Configuration("A"), later, access=ClientAccess("admin", "/k"), socket_folder=Path("/run/x")
    )
    assert "mon_host = [v2:10.0.0.1:3300,v1:10.0.0.1:6789]\n" in text


def test_a_list_of_pgs_is_just_that() -> None:
    assert listed_pgs(PGS) == PGS
    assert listed_pgs(None) == ()
    assert listed_pgs({"pg_ready": True, "pg_stats": PGS}) == PGS
    assert listed_pgs({"pg_ready": False}) is None
    await_placed(Luminous(), "cephfit-ec", 23, patience_seconds=1.0)


def test_a_pool_on_a_code_is_read_back_without_asking_for_overwrites() -> None:
    code = {"k": "4", "m": "2"}
    plan = PoolPlan("cephfit-ec", Role.DATA, {"pg_num": "2"}, erasure=code, declared_as={"pg_num": "pg_num"})
    settings = [Setting(Partition.POOL, "pool", key, 2) for key in ("pg_num", "erasure.k", "erasure.m")]
    values, faults = read_back_pools(Luminous(), [plan], settings, {})
    assert faults == []
    assert values[str(settings[1])] == {"cephfit-ec": "4"}


def test_room_taken_by_clients() -> None:
    assert stored_nbytes({"kb_used": 1, "bytes_used": 1024, "max_avail": 5, "objects": 1}) == 1024
    assert stored_nbytes({"stored": 1024, "bytes_used": 3072}) == 1024


def test_daemons_that_do_not_tell_where_values_come_from() -> None:
    """Mimic and Nautilus have a config store, and no `ceph tell osd.N config diff`."""
    cluster = Luminous()
    cluster.answers = {"version": {"version": LUMINOUS.replace("12.2.13", "13.2.10")}}
    values = DaemonValues(cluster, Catalogue(cluster), AdminSockets(cluster, Hosts(), "/etc/ceph/ceph.conf"))
    assert values.differences([Daemon("osd", "0")]) == {"osd.0": {}}


def test_osds_that_cannot_drop_their_caches_are_found_by_preflight() -> None:
    assert why_no_cache_drop(Luminous()) == "OSDs of Ceph 12.2.13 do not have the command `cache drop`"


def test_what_is_older_than_luminous_is_refused_in_a_sentence() -> None:
    with pytest.raises(ClusterError, match=r"runs Ceph 10\.2\.11") as error:
        require_luminous("10.2.11", where="ceph:old")
    assert error.value.remedy == "it works on Luminous (12.2) and later"
    with pytest.raises(ClusterError):
        require_luminous("0.94.10", where="ceph:old")
    for version in ("12.2.13", "16.2.15", "19.3.0-dev", "some-branch"):
        require_luminous(version, where="ceph:here")
    assert [is_before_nautilus(v) for v in ("12.2.13", "13.2.10", "14.2.22", "some-branch")] == [
        True,
        True,
        False,
        False,
    ]


def test_confirmations_have_other_names() -> None:
    """MonCommands.h of 12.2: `osd pool set ... name=force`, `osd pool rm ... name=sure`."""
    assert as_before_nautilus("osd pool set", {"var": "size", "yes_i_really_mean_it": True}) == {
        "var": "size",
        "force": "--yes-i-really-mean-it",
    }
    assert as_before_nautilus("osd tier cache-mode", {"mode": "readonly", "yes_i_really_mean_it": True}) == {
        "mode": "readonly",
        "sure": "--yes-i-really-mean-it",
    }
    assert as_before_nautilus("osd pool create", {"pool": "p", "autoscale_mode": "off"}) == {"pool": "p"}


class OldMonitors:
    """librados on a cluster of 12.2, as far as pools are deleted."""

    def __init__(self, **settings: Any) -> None:
        self.pools = {"p"}

    def connect(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def mon_command(self, text: str, payload: bytes) -> tuple[int, bytes, str]:
        said = json.loads(text)
        assert said["prefix"] == "osd pool rm"
        if said.get("sure") != "--yes-i-really-really-mean-it":
            return -errno.EPERM, b"", "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool p"
        if said["pool"] == "kept":
            return -errno.EPERM, b"", "pool deletion is disabled"
        self.pools.discard(said["pool"])
        return 0, b"", "pool 'p' removed"


def test_pools_are_deleted_over_librados(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rados.Rados", OldMonitors)
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\n")
    admin = RadosAdmin(conf)
    admin.command("osd pool rm", pool="p", pool2="p", yes_i_really_really_mean_it=True)
    assert admin.cluster.pools == set()
    with pytest.raises(RefusedError, match="EPERM"):
        admin.command("osd pool rm", pool="kept", pool2="kept", yes_i_really_really_mean_it=True)


def test_the_program_creates_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ceph"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/called\n'
        'case "$*" in *autoscale_mode*) echo "Invalid command: unused arguments" >&2;'
        ' echo "Error EINVAL: invalid command" >&2; exit 22;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(fallback_admins.shutil, "which", lambda name: str(program))
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\n")
    BinaryAdmin(conf).command("osd pool create", pool="p", pg_num=8, autoscale_mode="off")
    calls = (tmp_path / "called").read_text().splitlines()
    assert [("autoscale" in call) for call in calls] == [True, False]


def test_caches_are_dropped_by_the_osds_that_are_up() -> None:
    """An OSD whose disk has died, and that is out, refuses with ENXIO."""

    class WithDeadDisk(Luminous):
        def __init__(self) -> None:
            super().__init__()
            self.answers |= {"osd dump": {"osds": [{"osd": 0, "up": 1}, {"osd": 1, "up": 0}, {"osd": 2, "up": 1}]}}
            self.dropped: list[str] = []

        def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
            if daemon == "osd.1":
                raise refusal(daemon, prefix, errno.ENXIO, "")
            assert prefix == "cache drop"
            self.dropped.append(daemon)

    cluster = WithDeadDisk()
    drop_osd_caches(cluster)
    assert cluster.dropped == ["osd.0", "osd.2"]

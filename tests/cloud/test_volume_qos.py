"""QoS that a sweep file declares for Cinder volumes: what is read and refused, and the volume types made of it.

What Cinder (release Zed) said to an administrator and to an ordinary user is a recording, which
tests/cloud/record_cloud.py makes.
"""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("vcr", reason="needs vcrpy")

from openstack.connection import Connection
from recorded_cloud import played, player
from scripted_services import Services

from cephfit.cloud import cloud_cleanup
from cephfit.cloud.cloud_choice import CloudChoice
from cephfit.cloud.cloud_facts import CloudForecast
from cephfit.cloud.owned_resources import OwnedResource, owned
from cephfit.cloud.volumes import volume_types
from cephfit.cloud.volumes.volume_types import Qos, VolumeKind, kind_of, read_back
from cephfit.core.errors import InputError
from cephfit.core.protocols import NullProgress
from cephfit.core.values.configuration import SCOPE, Configuration, Partition, Setting
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.sweep_plan import Sweep

pytestmark = pytest.mark.usefixtures("recorded_release")

RUN = "recorded"
OTHERS = ("recorded-2", "cephfit-recorded")
"""Runs with similar ids: cephfit-recorded-2-... begins as the names of the run do."""
QOS = {"total_iops_sec": "60"}
KIND = VolumeKind("hdd", QOS)


def sweep_of(volume: str, *, design: str = "") -> Sweep:
    text = f"""
schema_version: 1
name: qos
{f"configurations: {{capped: {{volume: {volume}}}}}" if volume else ""}
{design}
measurement: {{sizes: [4K], patterns: [read], clients: 1, volume_size: 16M, repeats: 1, run_seconds: 2, seed: 1,
  cache: warm}}
"""
    return parse_sweep(text, file="qos.yaml")


def test_limits_and_who_enforces_them_are_settings_of_volumes() -> None:
    capped = sweep_of("{type: ssd, qos: {consumer: back-end, read_iops_sec: 500, write_bytes_sec: 20M}}")
    configuration = capped.configurations[1]
    assert [str(setting) for setting in configuration.settings] == [
        "pool/volume/qos.consumer = back-end",
        "pool/volume/qos.read_iops_sec = 500",
        "pool/volume/qos.write_bytes_sec = 20M",
        "pool/volume/type = ssd",
    ]
    kind = kind_of(configuration, default="hdd")
    assert kind.base == "ssd"
    assert kind.spec("x") == Qos("x", "back-end", {"read_iops_sec": "500", "write_bytes_sec": str(20 << 20)})


def test_the_hypervisor_enforces_what_nobody_else_is_named_for() -> None:
    kind = kind_of(sweep_of("{qos: {total_iops_sec_per_gb: 10}}").configurations[1], default="hdd")
    assert (kind.base, kind.spec("x").consumer) == ("hdd", "front-end")


@pytest.mark.parametrize(
    ("qos", "words"),
    [
        ("{total_iop_sec: 5}", "did you mean 'total_iops_sec'?"),
        ("{}", "qos has no limits"),
        ("500", "must be a mapping"),
        ("{consumer: both}", "no limit is given"),
        ("{consumer: frontend, total_iops_sec: 5}", "consumer is 'frontend', not one of front-end"),
        ("{total_iops_sec: 0}", "total_iops_sec is 0: a whole number of 1 or more is required"),
        ("{total_iops_sec: 20K}", "total_iops_sec is '20K'"),
        ("{total_iops_sec: true}", "total_iops_sec is True"),
        ("{read_bytes_sec: fast}", "read_bytes_sec is 'fast': a size of 1 byte or more"),
        ("{total_iops_sec: 5, write_iops_sec_max: 9}", "total_iops_sec and write_iops_sec_max exclude each other"),
        ("{total_iops_sec: 5, total_iops_sec_per_gb: 9}", "exclude each other: the second would override"),
        ("{total_iops_sec_max: 5}", "total_iops_sec_max is the burst beyond total_iops_sec, which is missing"),
        ("{read_iops_sec: 6, read_iops_sec_max: 5}", "read_iops_sec_max = 5 is less than read_iops_sec = 6"),
        ("{total_bytes_sec_per_gb_min: 5M}", "is the minimum of total_bytes_sec_per_gb, which is missing"),
        ("{total_bytes_sec: 5M, size_iops_sec: 4096}", "no limit of I/Os is given"),
    ],
)
def test_what_would_limit_nothing_or_something_else_is_refused_with_its_line(qos: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        sweep_of(f"{{qos: {qos}}}")
    assert words in str(error.value)
    assert str(error.value).startswith("qos.yaml:4")


def test_limits_are_varied_by_designs_and_their_combinations_looked_at() -> None:
    settings = "volume: {qos: {total_iops_sec: [100, 500], total_bytes_sec: [10M, 20M]}}"
    made = sweep_of("", design=f"design: {{kind: product, settings: {{{settings}}}}}")
    assert len(made.configurations) == 1 + 4
    settings = "volume: {qos: {total_iops_sec: [100, 500], read_iops_sec: [10]}}"
    with pytest.raises(InputError, match="exclude each other"):
        sweep_of("", design=f"design: {{kind: product, settings: {{{settings}}}}}")


def test_each_type_with_each_qos_has_a_name_of_its_own_with_the_runs_id() -> None:
    kinds = [VolumeKind("hdd"), KIND, VolumeKind("ssd", QOS), VolumeKind("hdd", {"total_iops_sec": "61"})]
    kinds += [VolumeKind("fast ssd", QOS), VolumeKind("fast_ssd", QOS)]
    names = [kind.type_name(RUN) for kind in kinds]
    assert names[0] == "hdd"
    assert len(set(names)) == len(names)
    assert all(name.startswith("cephfit-recorded-") and " " not in name for name in names[1:])


@pytest.mark.parametrize(
    ("qos", "gib", "is_slow"),
    [
        ({"total_iops_sec": "60"}, 1, False),
        ({"write_bytes_sec": "500000"}, 1, True),
        ({"write_bytes_sec_per_gb": "500000"}, 3, False),
        ({"total_iops_sec": "200", "size_iops_sec": "4096"}, 1, True),
    ],
)
def test_volumes_that_could_not_be_filled_are_told_before(qos: dict[str, str], gib: int, is_slow: bool) -> None:
    assert bool(VolumeKind("hdd", qos).why_not(gib)) is is_slow


def test_what_cinder_has_is_held_against_what_was_declared() -> None:
    key = Setting(Partition.POOL, "volume", "qos.total_bytes_sec", "1M")
    capped = Configuration("capped", (key,))
    values, wrong = read_back(capped, Qos("x", "front-end", {"total_bytes_sec": "1048576"}))
    assert (values, wrong) == ({str(key): {"cinder": "1048576"}}, [])
    assert read_back(capped, None)[1] == [f"{key}: Cinder has None"]


# Each scenario is what was done when it was recorded, and what is done again when it is played.


def made_and_gone(cloud: Connection) -> dict[str, Any]:
    name = KIND.type_name(RUN)
    for _ in range(2):  # as after a kill
        volume_types.ensure(cloud, RUN, name, KIND.base, KIND.spec(name))
    made = next(t for t in volume_types.volume_types(cloud) if t.name == name)
    volume = cloud.block_storage.create_volume(size=1, name="not-of-a-run", volume_type=name)
    cloud.block_storage.wait_for_status(volume, "available", wait=60)
    first = cloud_cleanup.clean(cloud, RUN, NullProgress())
    cloud.block_storage.delete_volume(volume)
    cloud.block_storage.wait_for_delete(volume, wait=60)
    return {
        "why_not": volume_types.why_not_made(cloud, "hdd"),
        "specs": dict(made.extra_specs),
        "is_public": made.is_public,
        "first": kinds_of(*first),
        "second": kinds_of(*cloud_cleanup.clean(cloud, RUN, NullProgress())),
        "after": owned(cloud, RUN),
    }


def kinds_of(
    gone: tuple[OwnedResource, ...], left: tuple[cloud_cleanup.Left, ...]
) -> tuple[list[str], dict[str, str]]:
    return [one.kind for one in gone], {one.resource.kind: one.why for one in left}


def why_not_for_a_user(cloud: Connection) -> tuple[str, tuple[OwnedResource, ...]]:
    return volume_types.why_not_made(cloud, "hdd"), owned(cloud, RUN)


@pytest.mark.usefixtures("no_waiting")
def test_a_type_with_volumes_keeps_its_qos_and_goes_before_its_spec() -> None:
    """There are types and specs of runs with similar ids, which stay."""
    with played("own_types"):
        found = made_and_gone(player())
    assert found["why_not"] == ""
    assert found["specs"] == {"volume_backend_name": "hdd", "cephfit:run": RUN}
    assert found["is_public"] is False
    gone, left = found["first"]
    assert gone == []
    assert list(left) == ["volume type", "QoS spec"]
    assert all("in use" in why for why in left.values())
    assert found["second"] == (["volume type", "QoS spec"], {})
    assert found["after"] == ()


def test_an_ordinary_user_is_told_who_sets_qos_and_shown_no_types() -> None:
    with played("own_types_of_user"):
        why, things = why_not_for_a_user(player())
    assert why == "QoS is set by the cloud's administrators, and this user is not one"
    assert things == ()


def test_what_a_cloud_cannot_do_is_asked_for_once_however_many_configurations_there_are(
    services: Services, scripted_cloud: Connection
) -> None:
    storage = "GET /block_storage/v3"
    types = [{"id": "1", "name": "hdd"}, {"id": "2", "name": "ssd"}]
    services.say(f"{storage}/types", (200, {"volume_types": types}))
    services.say(f"{storage}/qos-specs", (403, {"forbidden": {"message": "not you"}}))
    of_volumes = [
        Setting(Partition.POOL, SCOPE, f"qos.{key}", "60") for key in ("total_iops_sec", "read_iops_sec")
    ]
    of_ceph = Setting(Partition.CEPH, "osd", "osd_op_num_shards", 1)
    configurations = [Configuration(f"free-{n}") for n in range(3)]
    configurations += [Configuration(one.key, (one,)) for one in (*of_volumes, of_ceph)]
    choice = CloudChoice(flavor="small", volume_type="hdd")
    found = CloudForecast(scripted_cloud, choice).unsupported(configurations)
    assert {name: why[0].partition(",")[0] for name, why in found.items()} == {
        **dict.fromkeys([one.key for one in of_volumes], "QoS is set by the cloud's administrators"),
        of_ceph.key: f"{of_ceph} cannot be set through OpenStack",
    }
    assert (services.n_asked(f"{storage}/types"), services.n_asked(f"{storage}/qos-specs")) == (1, 1)
    gone = CloudForecast(scripted_cloud, replace(choice, volume_type="sdd"))
    with pytest.raises(InputError, match="no volume type sdd"):
        gone.unsupported(configurations)

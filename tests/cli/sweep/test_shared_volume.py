"""`cephfit shared-volume`: what is refused before anything is created, and how its answer reads."""

import pytest
from click.testing import CliRunner

from cephfit.cli.sweep import shared_volume_command
from cephfit.cli.sweep.shared_volume_command import command
from cephfit.core.errors import InputError
from cephfit.operations.measuring.shared_volume import missing_file_systems
from cephfit.results.statistics.sharing_cost import ClientFigures, SharingRun, sharing_costs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "sim"), "cannot be shared on 'sim'"),
        (("--target", "ceph"), "which pool may have the volume"),
        (("--target", "lab:none-of-this-name"), "none-of-this-name"),
        (("--target", "lab", "--volume-size", "8M"), "too little for 5 regions of at least 4M"),
        (("--target", "lab", "--range", "10000"), "do not align"),
        (("--target", "lab", "--size", "4x"), "is not a size"),
        (("--target", "lab", "--size", "0"), "a size of 0 bytes is none"),
        (("--target", "lab", "--range", "0"), "a size of 0 bytes is none"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(command, arguments, catch_exceptions=False)


CLOUD = ("--target", "openstack:c,flavor=f,network=n,volume_type=t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*CLOUD, "--way", "exclusive-lock"), "Cinder removes the feature exclusive-lock"),
        ((*CLOUD, "--way", "none", "--way", "ranges"), "guests have neither librados nor access to the cluster"),
        ((*CLOUD, "--shared", "12.5"), "12.5 per cent is not a whole number"),
        ((*CLOUD, "--pool", "volumes"), "the volume type of the target chooses the pool"),
        ((*CLOUD, "--id", "admin"), "--id: the volume type of the target chooses the pool"),
        (("--target", "openstack:c,flavor=f,network=n,volume_type=t,lab=default"), "nothing is configured here"),
        (("--target", "openstack:c,flavor=f,volume_type=t"), "which this machine must reach"),
        ((*CLOUD[:1], CLOUD[1] + ",results=console"), "which this machine must reach"),
        (("--target", "openstack:c,network=n"), "the flavor of the benchmark clients is missing"),
    ],
)
def test_what_guests_cannot_measure_is_refused_before_the_cloud_is_asked(
    arguments: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("openstack", reason="needs the extra openstack")
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(command, arguments, catch_exceptions=False)


@pytest.mark.parametrize("option", [("--shared", "101"), ("--clients", "1"), ("--way", "hope")])
def test_values_out_of_range_are_refused(option: tuple[str, str]) -> None:
    assert CliRunner().invoke(command, ["--target", "lab", *option]).exit_code == 2


def run(way: str, range_nbytes: int, repeat: int, n: int, *, shared: float = 100.0) -> SharingRun:
    return SharingRun(way, range_nbytes, shared, repeat, 1.0, (ClientFigures(n, 0.0, 1.0, 0.0, 0, (1.0,) * n),))


def test_the_first_line_has_the_cost_of_each_kind_of_lock() -> None:
    rates = {("none", 0): 100, ("exclusive-lock", 0): 5, ("ranges", 65536): 30, ("ranges", 4096): 40}
    costs = sharing_costs([run(*place, repeat, n) for place, n in rates.items() for repeat in range(2)])
    line = shared_volume_command._answer(costs)
    assert line.startswith("With 100 % of the accesses shared, in per cent of the rate without locks: ")
    assert line.endswith("ranges of 4K 40 (40 to 40), ranges of 64K 30 (30 to 30), exclusive-lock 5 (5 to 5)")


def test_where_only_sharing_without_locks_was_measured_the_first_line_has_its_rates() -> None:
    runs = [run("none", 0, repeat, n, shared=pct) for pct, n in ((0.0, 80), (100.0, 60)) for repeat in range(2)]
    line = shared_volume_command._answer(sharing_costs(runs))
    assert line.startswith("Without locks, accesses per second of all clients: ")
    assert line.endswith("80 (80 to 80) with 0 % shared, 60 (60 to 60) with 100 % shared")


def test_without_a_measured_reference_the_cost_is_unknown() -> None:
    assert "unknown" in shared_volume_command._answer(sharing_costs([run("ranges", 4096, 0, 10)]))


def test_a_missing_cluster_file_system_is_named() -> None:
    both = missing_file_systems("nodev\tsysfs\n\text4\n")
    assert [sentence.split(" ")[0] for sentence in both] == ["OCFS2", "GFS2"]
    assert "this kernel has no file system gfs2" in both[1]
    assert "no set-up of its lock manager" in missing_file_systems("\tocfs2\n")[0]

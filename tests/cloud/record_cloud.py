"""Record tests/cloud/recorded again: python tests/cloud/record_cloud.py LAB_FOLDER RELEASE [NAME...]

The lab (`cephfit lab up --openstack`) must have no other user: each failure is caused for real on it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openstack
import test_cloud_preflight
import test_cloud_recorded as scenarios
import test_cloud_stacks
import test_placed_images
import test_volume_qos
from live_cloud import set_volume_status
from openstack.connection import Connection
from recorded_cloud import FOLDER, recorded, usual_addresses

from cephfit.cloud import cloud_cleanup
from cephfit.cloud.ownership import NAME_PREFIX, RUN_KEY
from cephfit.cloud.stacks import template_path
from cephfit.cloud.volumes import volume_types
from cephfit.core.journal import Journal
from cephfit.core.protocols import NullProgress
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import processes
from cephfit.lab.openstack.cloud_resources import connect

QUOTA = {"instances": 24, "ram": 12288}
REVOKE = """
import sys
from pathlib import Path
from cephfit.lab.cluster import Lab
from cephfit.lab.openstack.cloud_resources import connect
cloud = connect(Lab.open(folder=Path(sys.argv[1])).cloud.layout)
cloud.identity.delete("/auth/tokens", headers={"X-Subject-Token": sys.stdin.read()})
"""


class Recorder:
    """Makes trouble in a lab, and records what its services say of it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        assert lab.cloud is not None
        self.folder = folder
        self.lab = lab
        self._layout = lab.cloud.layout
        self.admin = connect(self._layout)
        self.user = connect(self._layout, self._layout.user_cloud)
        self.addresses = {
            str(template_path("client").parent): "/cephfit/heat",
            **usual_addresses(self.admin),
            lab.name: "lab",
        }

    def record(self, name: str, scenario: Callable[[Connection], Any], *, as_admin: bool = False) -> None:
        with recorded(name, self.folder, self.addresses):
            cloud = connect(self._layout) if as_admin else connect(self._layout, self._layout.user_cloud)
            print(name, scenario(cloud), flush=True)
            cloud.close()

    @contextmanager
    def quota(self, **limits: int) -> Iterator[None]:
        project = self.user.current_project_id
        self.admin.compute.update_quota_set(project, **limits)
        yield
        self.admin.compute.update_quota_set(project, **{key: QUOTA[key] for key in limits})

    def tidy(self, cloud: Connection) -> None:
        cloud_cleanup.clean(cloud, scenarios.RUN, NullProgress())

    def stray_volume(self, cloud: Connection) -> str:
        made = cloud.block_storage.create_volume(
            size=1, name=f"{NAME_PREFIX}-{scenarios.RUN}-9", volume_type="hdd", metadata={RUN_KEY: scenarios.RUN}
        )
        cloud.block_storage.wait_for_status(made, "available", wait=120)
        return str(made.id)

    def revoke(self, cloud: Connection) -> None:
        # In another process: what is asked here is recorded.
        argv = [sys.executable, "-c", REVOKE, str(self.lab.folder)]
        subprocess.run(argv, input=cloud.session.get_token(), text=True, check=True)

    def kill_database(self) -> None:
        pid = processes.from_pid_file(self._layout.folder / "run" / "mariadb.pid", self.lab.folder)
        assert pid is not None
        processes.kill([pid])

    def start(self) -> None:
        argv = [sys.executable, "-m", "cephfit.cli.main", "lab", "start", "--name", self.lab.name]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def main(folder: Path, release: str, names: list[str]) -> None:
    to = Recorder(Lab.open(folder=folder), FOLDER / release)
    cloud_cleanup._STUCK_SECONDS = cloud_cleanup._STUCK_DELETING_SECONDS = 0.0
    to.folder.mkdir(exist_ok=True)
    for name, make in {
        "beforehand": lambda: before_anything(to),
        "own_stacks": lambda: own_stacks(to),
        "made_and_cleaned": lambda: made_and_cleaned(to),
        "stuck": lambda: stuck(to),
        "stacks": lambda: stacks(to),
        "qos": lambda: qos(to),
        "own_types": lambda: types_of_runs(to),
        "placed_images": lambda: placed_images(to),
        "log_in": lambda: log_in(to),
        "in_trouble": lambda: to.record(
            "in_trouble", lambda cloud: scenarios.failing(cloud, to.kill_database, to.start)
        ),
    }.items():
        if not names or name in names:
            make()


def before_anything(to: Recorder) -> None:
    storage, project = to.admin.block_storage, to.user.current_project_id
    storage.update_quota_set(project, **test_cloud_preflight.QUOTA)
    to.admin.compute.update_quota_set(project, server_group_members=10)
    to.record("enough", test_cloud_preflight.enough)
    storage.update_quota_set(project, **dict.fromkeys(test_cloud_preflight.QUOTA, -1))
    to.admin.compute.update_quota_set(project, server_group_members=24)
    to.record("lacking", test_cloud_preflight.lacking)
    to.record("own_place", test_cloud_preflight.own_place)
    for scenario in (
        test_cloud_preflight.room_on_hosts,
        test_cloud_preflight.too_few_processors,
        test_cloud_preflight.room_in_pools,
        test_cloud_preflight.what_a_run_would_make,
    ):
        to.record(scenario.__name__, scenario, as_admin=True)


def own_stacks(to: Recorder) -> None:
    for scenario in (
        test_cloud_stacks.lost_answers,
        test_cloud_stacks.deleted_while_it_is_made,
        test_cloud_stacks.stack_of_others,
    ):
        to.record(scenario.__name__, scenario)
        to.tidy(to.user)
    to.user.orchestration.delete_stack(test_cloud_stacks.NAME)


def made_and_cleaned(to: Recorder) -> None:
    to.record("made_and_scaled", scenarios.made_and_scaled, as_admin=True)
    to.stray_volume(to.admin)
    to.record("cleaned", scenarios.cleaned, as_admin=True)


def stuck(to: Recorder) -> None:
    volume = to.stray_volume(to.user)
    set_volume_status(to.lab, volume, "deleting")
    to.record("stuck", scenarios.stuck)
    set_volume_status(to.lab, volume, "available")
    to.tidy(to.user)


def stacks(to: Recorder) -> None:
    flavor = to.admin.compute.create_flavor(name=scenarios.TOO_LARGE, ram=1 << 20, vcpus=1, disk=1)
    with to.quota(ram=-1):
        to.record("no_valid_host", scenarios.stack_error(flavor=scenarios.TOO_LARGE))
        to.tidy(to.user)  # no quota may be less than what is used
    to.admin.compute.delete_flavor(flavor)
    with to.quota(instances=0):
        to.record("over_quota", scenarios.stack_error())
    to.tidy(to.user)
    made = to.admin.block_storage.create_type(
        name=scenarios.NOWHERE, extra_specs={"volume_backend_name": "nowhere"}
    )
    to.record("no_back_end", scenarios.stack_error(volume_type=scenarios.NOWHERE))
    to.tidy(to.user)
    to.admin.block_storage.delete_type(made)
    to.record("no_image", scenarios.stack_error(image="cephfit-tests-gone"))


def qos(to: Recorder) -> None:
    storage = to.admin.block_storage
    spec = storage.create_qos_spec(name=scenarios.CAPPED, consumer="front-end", total_iops_sec="60")
    made = storage.create_type(name=scenarios.CAPPED, extra_specs={"volume_backend_name": "hdd"})
    storage.get(f"/qos-specs/{spec.id}/associate", params={"vol_type_id": made.id})
    to.record("qos_by_administrator", scenarios.qos_of_types, as_admin=True)
    to.record("qos_by_user", scenarios.qos_of_types)
    storage.delete_type(made)
    storage.delete_qos_spec(spec, ignore_missing=True)


def types_of_runs(to: Recorder) -> None:
    others = []
    for run_id in test_volume_qos.OTHERS:
        name = test_volume_qos.KIND.type_name(run_id)
        volume_types.ensure(to.admin, run_id, name, "hdd", test_volume_qos.KIND.spec(name))
        others.append((run_id, name))
    to.record("own_types", test_volume_qos.made_and_gone, as_admin=True)
    to.record("own_types_of_user", test_volume_qos.why_not_for_a_user)
    for run_id, name in others:
        assert [kind.name for kind in volume_types.qos_specs(to.admin)].count(name) == 1, "others' things stay"
        volume_types.delete(to.admin, run_id, name)


def placed_images(to: Recorder) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl")
        to.record("placed_images", lambda cloud: test_placed_images.placed_and_undone(cloud, journal))


def log_in(to: Recorder) -> None:
    settings = {**to.user.config.config["auth"], "password": "wrong"}
    with recorded("wrong_password", to.folder, to.addresses):
        rejected = openstack.connect(auth=settings, region_name="RegionOne")
        print("wrong_password", scenarios.error_of(lambda: scenarios.volume_types(rejected)), flush=True)
    to.record("revoked", lambda cloud: scenarios.in_between(cloud, lambda: to.revoke(cloud)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])

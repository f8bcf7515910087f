"""The lab's OpenStack with real services, guests and volumes."""

import base64
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, until
from openstack.connection import Connection
from openstack.exceptions import BadRequestException

from cephfit.cloud.guests import guest_jobs, guests
from cephfit.cloud.guests.image_upload import DEFAULT_NAME
from cephfit.cloud.volumes.shared_attachments import attach_to_all
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import processes
from cephfit.lab.openstack import cloud_resources
from cephfit.lab.openstack.cloud_resources import connect
from cephfit.lab.openstack.layout import interface_names
from cephfit.lab.openstack.openstack_lab import LabCloud
from cephfit.measure.fio.fio_servers import DEFAULT_PORT

pytestmark = [*MARKS, pytest.mark.timeout(1500)]

Cephfit = Callable[..., subprocess.CompletedProcess[str]]
TracesOf = Callable[[Path], list[str]]
SYSCTLS = ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-arptables")


SIGNALLING_STACK = f"""
heat_template_version: "2021-04-16"
resources:
  group: {{type: OS::Neutron::SecurityGroup, properties: {{rules: [{{protocol: tcp}}]}}}}
  port:
    type: OS::Neutron::Port
    properties: {{network: {cloud_resources.NETWORK}, security_groups: [{{get_resource: group}}]}}
  handle: {{type: OS::Heat::WaitConditionHandle}}
  done: {{type: OS::Heat::WaitCondition, properties: {{handle: {{get_resource: handle}}, timeout: 300}}}}
  volume: {{type: OS::Cinder::Volume, properties: {{size: 1, volume_type: hdd}}}}
  attachment:
    type: OS::Cinder::VolumeAttachment
    properties: {{volume_id: {{get_resource: volume}}, instance_uuid: {{get_resource: server}}}}
  server:
    type: OS::Nova::Server
    properties:
      image: {DEFAULT_NAME}
      flavor: cephfit.small
      networks: [{{port: {{get_resource: port}}}}]
      user_data_format: RAW
      user_data:
        str_replace:
          params: {{$endpoint: {{get_attr: [handle, endpoint]}}, $token: {{get_attr: [handle, token]}}}}
          template: |
            #!/bin/sh
            echo '{{"status": "SUCCESS", "data": "measured"}}' >/tmp/signal
            json="Content-Type: application/json"
            wget -O - --header "X-Auth-Token: $token" --header "$json" --post-file /tmp/signal $endpoint
outputs:
  data: {{value: {{get_attr: [done, data]}}}}
"""


@pytest.fixture
def lab_cloud(openstack_lab: Lab) -> LabCloud:
    cloud = openstack_lab.cloud
    assert cloud is not None
    return cloud


@pytest.fixture
def user(cloud_user: Connection) -> Iterator[Connection]:
    """A connection of the ordinary project; what a test leaves in it is removed."""
    cloud = cloud_user
    yield cloud
    for stack in cloud.orchestration.stacks():
        cloud.orchestration.delete_stack(stack)
    for server in cloud.compute.servers():
        cloud.compute.delete_server(server)
        cloud.compute.wait_for_delete(server, wait=120)
    for volume in cloud.block_storage.volumes():
        cloud.block_storage.delete_volume(volume)
        cloud.block_storage.wait_for_delete(volume, wait=120)


@pytest.fixture
def key(user: Connection, tmp_path: Path) -> Iterator[Path]:
    """A private key whose public half the cloud knows by the file's name."""
    file = tmp_path / "login"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    made = user.compute.create_keypair(name=file.name, public_key=(tmp_path / "login.pub").read_text().strip())
    yield file
    user.compute.delete_keypair(made)


def in_guest(address: str, key: Path, *argv: str) -> str:
    """Run a program in a guest over SSH and return its output."""
    options = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
    ssh = ("ssh", "-i", str(key), *options, "-o", "ConnectTimeout=20", f"root@{address}")
    return subprocess.run([*ssh, *argv], capture_output=True, text=True, timeout=120, check=True).stdout.strip()


def boot(cloud: Connection, *, network: bool, script: str = "", name: str = "guest", **more: Any) -> Any:
    """A server from the lab's image, ACTIVE."""
    server = cloud.compute.create_server(
        name=name,
        image_id=next(cloud.image.images(name=DEFAULT_NAME)).id,
        flavor_id=next(f.id for f in cloud.compute.flavors() if f.name == "cephfit.small"),
        networks=[{"uuid": next(cloud.network.networks(name=cloud_resources.NETWORK)).id}] if network else "none",
        config_drive=True,
        **({"user_data": base64.b64encode(script.encode()).decode()} if script else {}),
        **more,
    )
    return cloud.compute.wait_for_server(server, wait=240)


def volume_of(cloud: Connection, volume_type: str) -> Any:
    made = cloud.block_storage.create_volume(size=1, name=f"on-{volume_type}", volume_type=volume_type)
    return cloud.block_storage.wait_for_status(made, "available", wait=120)


def attach(cloud: Connection, server: Any, volume: Any) -> None:
    cloud.compute.create_volume_attachment(server, volume=volume.id)
    cloud.block_storage.wait_for_status(cloud.block_storage.get_volume(volume.id), "in-use", wait=120)


def address_of(cloud: Connection, server: Any) -> str:
    (network,) = cloud.compute.get_server(server.id).addresses.values()
    return str(network[0]["addr"])


def wait_for_fio(address: str) -> None:
    """Wait until a guest has started its last service, fio's server."""
    until = time.monotonic() + 180
    while True:
        with socket.socket() as probe:
            probe.settimeout(2.0)
            if probe.connect_ex((address, DEFAULT_PORT)) == 0:
                break
        assert time.monotonic() < until, f"fio's server at {address} does not answer"
        time.sleep(0.3)


def fio_in_guest(address: str, job: Path, device: str) -> dict[str, Any]:
    """Run fio on a device of a guest through its fio server; return the JSON."""
    job.write_text(
        f"[j]\nioengine=libaio\ndirect=1\nfilename={device}\nsize=64m\nrw=randwrite\nbs=4k\niodepth=8\n"
        "time_based\nruntime=4\n"
    )
    argv = ["fio", f"--client={address}", "--output-format=json", str(job)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    document: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return document


@pytest.mark.core
@pytest.mark.takes(seconds=40)
def test_a_guest_has_a_volume_of_each_device_class_and_its_fio_answers(
    openstack_lab: Lab, user: Connection, key: Path, tmp_path: Path
) -> None:
    """Data written through the volume of a type is in the pool of that type, only on OSDs of that class."""
    volumes = {name: volume_of(user, name) for name in ("hdd", "ssd")}
    server = boot(user, network=True, key_name=key.name)
    for volume in volumes.values():
        attach(user, server, volume)
    address = address_of(user, server)
    wait_for_fio(address)
    iops = {}
    devices = {name: in_guest(address, key, "volume-device", volume.id) for name, volume in volumes.items()}
    assert set(devices.values()) == {"/dev/vdb", "/dev/vdc"}, "in whichever order the guest found them"
    for name, device in devices.items():
        (stats, *_) = fio_in_guest(address, tmp_path / f"{name}.fio", device)["client_stats"]
        assert stats["error"] == 0
        assert stats["write"]["total_ios"] > 0
        iops[name] = stats["write"]["iops"]
        image = f"volumes-{name}/volume-{volumes[name].id}"
        argv = ["rbd", "-c", str(openstack_lab.conf), "du", "--exact", "--format", "json", image]
        used = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["images"][0]["used_size"]
        assert used >= min(stats["write"]["total_ios"] * 4096, 16 << 20) / 4, "what fio wrote is in Ceph"
    assert iops["ssd"] > iops["hdd"], "3,000 IOPS and 500 IOPS of disks below them"


def write_block(address: str, key: Path, device: str, block: int, text: str) -> None:
    """Write a block of 4 KiB past the guest's page cache."""
    whole = f"printf %-4096s {text} | dd of={device} bs=4096 seek={block} count=1 iflag=fullblock oflag=direct"
    in_guest(address, key, f"{whole} conv=notrunc")


def read_block(address: str, key: Path, device: str, block: int) -> str:
    """Read it in the same way."""
    return in_guest(address, key, f"dd if={device} bs=4096 skip={block} count=1 iflag=direct").strip()


@pytest.mark.core
@pytest.mark.takes(seconds=60)
def test_two_guests_use_one_volume_at_once_and_a_plain_volume_only_one(
    openstack_lab: Lab, user: Connection, key: Path
) -> None:
    """What one guest writes to the volume of a multi-attach type, the other reads; past the guests' caches."""
    shared, plain = volume_of(user, "hdd-multiattach"), volume_of(user, "hdd")
    assert (shared.is_multiattach, plain.is_multiattach) == (True, False)
    servers = [boot(user, network=True, name=f"guest-{n}", key_name=key.name) for n in range(2)]
    attach_to_all(user, shared.id, [server.id for server in servers])
    addresses = [address_of(user, server) for server in servers]
    for address in addresses:
        wait_for_fio(address)
    devices = [in_guest(address, key, "volume-device", shared.id) for address in addresses]
    for n in range(2):
        write_block(addresses[n], key, devices[n], 100 + n, f"written-by-{n}")
    for n in range(2):
        assert read_block(addresses[n], key, devices[n], 101 - n) == f"written-by-{1 - n}"
    write_block(addresses[1], key, devices[1], 100, "overwritten-by-1")
    assert read_block(addresses[0], key, devices[0], 100) == "overwritten-by-1"
    users = user.block_storage.get_volume(shared.id).attachments
    assert {one["server_id"] for one in users} == {server.id for server in servers}
    argv = ["rbd", "-c", str(openstack_lab.conf), "info", "--format", "json", f"volumes-hdd/volume-{shared.id}"]
    features = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["features"]
    assert "exclusive-lock" not in features, "Cinder removes it, so that two guests can write"
    attach(user, servers[0], plain)
    with pytest.raises(BadRequestException, match="already attached to instances"):
        user.compute.create_volume_attachment(servers[1], volume=plain.id)


@pytest.mark.core
def test_a_guest_without_a_network_prints_its_result_on_the_console(user: Connection) -> None:
    """A script in the user data finds the volume by its id, runs fio, and prints the result, packed."""
    volume = volume_of(user, "ssd")
    job = (
        f"fio --name=j --filename={guests.VOLUME} --ioengine=libaio --direct=1 --rw=write --bs=128k --size=8m"
        " --output-format=json\n"
    )
    server = boot(user, network=False, script=guest_jobs.user_data(volume.id, job, key="ab12", start=0))
    attach(user, server, volume)
    said = until(lambda: guest_jobs.unpacked(guests.console(user, server.id), "ab12"), seconds=240)
    assert (said.code, said.errors) == (0, "")
    assert json.loads(said.output)["jobs"][0]["write"]["io_bytes"] == 8 << 20


@pytest.mark.core
@pytest.mark.takes(seconds=25)
def test_a_stack_is_complete_when_its_guest_has_signalled(user: Connection) -> None:
    """Port with a security group, volume, attachment and wait condition; the signal reaches heat-api."""
    template = yaml.safe_load(SIGNALLING_STACK)
    stack = user.orchestration.create_stack(name="signals", template=template, timeout_mins=10)
    until = time.monotonic() + 400
    while "IN_PROGRESS" in (state := user.orchestration.get_stack(stack.id)).status:
        assert time.monotonic() < until, state.status_reason
        time.sleep(1)
    assert state.status == "CREATE_COMPLETE", state.status_reason
    (output,) = (entry["output_value"] for entry in state.outputs if entry["output_key"] == "data")
    assert json.loads(output) == {"1": "measured"}
    user.orchestration.delete_stack(stack.id)
    user.orchestration.wait_for_delete(state, wait=240)
    assert not list(user.compute.servers())
    assert not list(user.block_storage.volumes())


@pytest.mark.core
def test_the_ordinary_project_has_its_quota_and_may_not_administrate(
    cloud_admin: Connection, user: Connection
) -> None:
    limits = user.compute.get_limits().absolute
    assert (limits.instances, limits.total_cores, limits.server_group_members) == (24, 24, 24)
    assert user.block_storage.get("/limits").json()["limits"]["absolute"]["maxTotalVolumes"] == 48
    assert user.compute.get("/os-hypervisors").status_code == 403
    assert [h.hypervisor_type for h in cloud_admin.compute.hypervisors(details=True)] == ["QEMU"]


def test_a_dead_service_is_named_and_started_again(openstack_lab: Lab, lab_cloud: LabCloud) -> None:
    pid = processes.from_pid_file(lab_cloud.layout.folder / "run" / "heat-engine.pid", openstack_lab.folder)
    assert pid is not None
    processes.kill([pid])
    assert openstack_lab.status().dead == ("heat-engine",)
    openstack_lab.start()
    assert openstack_lab.status().dead == ()


@pytest.mark.takes(seconds=90)
def test_after_stop_and_start_all_data_is_still_there(openstack_lab: Lab, user: Connection) -> None:
    volume = volume_of(user, "hdd")
    server = boot(user, network=True, name="survivor")
    openstack_lab.stop()
    folder = openstack_lab.folder
    assert processes.of_folder(folder) == []
    assert not any(Path("/sys/class/net", end).exists() for end in interface_names(folder))
    openstack_lab.start()
    assert openstack_lab.status().dead == ()
    assert user.block_storage.get_volume(volume.id).status == "available"
    user.compute.start_server(server)
    user.compute.wait_for_server(user.compute.get_server(server.id), wait=240)
    attach(user, server, volume)


def firewall_rules() -> str:
    saves = (["iptables-save"], ["ip6tables-save"], ["ebtables-nft-save"])
    return "".join(subprocess.run(argv, capture_output=True, text=True, check=True).stdout for argv in saves)


def sysctls() -> dict[str, str]:
    files = {name: Path("/proc/sys/net", name) for name in SYSCTLS}
    return {name: file.read_text() for name, file in files.items() if file.exists()}


def interfaces(folder: Path) -> set[str]:
    """The ends of a lab's veth pair, the bridge, and its interfaces."""
    ends = {end for end in interface_names(folder) if Path("/sys/class/net", end).exists()}
    bridges = {link.readlink().name for end in ends if (link := Path("/sys/class/net", end, "master")).exists()}
    plugged = {port.name for bridge in bridges for port in Path("/sys/class/net", bridge, "brif").iterdir()}
    return ends | bridges | plugged


@pytest.mark.takes(seconds=200)
def test_down_leaves_nothing_with_a_guest_running(cephfit: Cephfit, traces_of: TracesOf, tmp_path: Path) -> None:
    """The commands of users; a guest with a volume still runs when the lab is removed."""
    folder, before, rules = tmp_path / "whole", sysctls(), firewall_rules()
    made = cephfit("lab", "up", "--openstack", "--name", "whole", "--folder", str(folder), "--json", seconds=900)
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)["openstack"]
    assert found["ready"]
    assert found["clouds"] == ["cephfit-lab-whole", "cephfit-lab-whole-user"]
    assert set(found["volume_types"]) == {"hdd", "ssd", "hdd-multiattach", "ssd-multiattach"}
    cloud = Lab.open("whole").cloud
    assert cloud is not None
    user = connect(cloud.layout, cloud.layout.user_cloud)
    attach(user, boot(user, network=True), volume_of(user, "ssd"))
    user.close()
    there = interfaces(folder)
    assert len(there) >= 5, f"two ends, a bridge, DHCP's tap and the guest's: {there}"
    assert sysctls() == before
    gone = cephfit("lab", "down", "--name", "whole", "--json")
    assert gone.returncode == 0, gone.stderr
    assert traces_of(folder) == []
    assert not [name for name in there if Path("/sys/class/net", name).exists()]
    assert (sysctls(), firewall_rules() == rules) == (before, True)
    assert not Path("/run/libvirt").exists() or not list(Path("/run/libvirt").rglob("*.pid"))


@pytest.mark.takes(seconds=60)
@pytest.mark.parametrize(
    ("mark", "deleted"),
    [
        pytest.param("namespace", False, marks=pytest.mark.cloud_whole),
        pytest.param("mariadb", False, marks=pytest.mark.cloud_whole),
        ("keystone-migration", True),
        pytest.param("neutron-dhcp-agent", False, marks=pytest.mark.cloud_whole),
    ],
)
def test_killed_during_creation_it_can_be_removed(
    cephfit: Cephfit, traces_of: TracesOf, tmp_path: Path, mark: str, deleted: bool
) -> None:
    """kill -9 shortly after a certain process was started; in one case the folder is deleted as well."""
    folder, name = tmp_path / "half", f"half-{mark}"
    argv = [sys.executable, "-m", "cephfit.cli.main", "lab", "up", "--openstack", "--name", name]
    argv += ["--folder", str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as maker:
        while not (folder / "openstack" / "run" / f"{mark}.pid").exists():
            assert maker.poll() is None, "`lab up` ended by itself"
            time.sleep(0.02)
        time.sleep(0.3)
        maker.send_signal(signal.SIGKILL)
    if deleted:
        shutil.rmtree(folder, ignore_errors=True)
    gone = cephfit("lab", "down", "--name", name)
    assert gone.returncode == 0, gone.stderr
    time.sleep(0.5)
    assert traces_of(folder) == []
    assert processes.of_folder(folder) == []
    assert interfaces(folder) == set()

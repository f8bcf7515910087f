"""The parts of the lab's OpenStack that need neither root nor its packages."""

import configparser
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

pytest.importorskip("openstack", reason="needs the extra openstack")

from cephfit.core.errors import HostError, InputError
from cephfit.lab import registry
from cephfit.lab.daemons import processes
from cephfit.lab.openstack import components, infrastructure
from cephfit.lab.openstack.layout import PORT_NAMES, SECRET_NAMES, Layout, interface_names
from cephfit.lab.openstack.openstack_lab import LabCloud


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The layout of a lab with an HDD and an SSD class; all ports and secrets differ."""
    return Layout(
        name="paper",
        lab_folder=tmp_path,
        ports={name: 20000 + i for i, name in enumerate(PORT_NAMES)},
        secrets={name: f"secret-of-{name}" for name in SECRET_NAMES},
        rbd_secret_uuid="7a2f7d0c-53ad-4bb6-9d6f-5b3fd6d3c9f1",
        network="10.77.9",
        pools={"hdd": "volumes-hdd", "ssd": "volumes-ssd"},
    )


@pytest.fixture
def written(layout: Layout) -> Layout:
    """The same with all its files."""
    layout.folder.mkdir()
    components.write_all(layout, LabCloud(layout).components)
    infrastructure.prepare(layout)
    return layout


def test_the_journal_is_read_back_unchanged_and_readable_by_root_only(layout: Layout) -> None:
    layout.folder.mkdir()
    ready = replace(layout, ready=True)
    ready.write()
    assert Layout.read(layout.lab_folder) == ready
    assert (layout.folder / "openstack.json").stat().st_mode & 0o077 == 0


def test_a_lab_without_an_openstack_has_no_journal_and_a_broken_one_is_named(layout: Layout) -> None:
    assert Layout.read(layout.lab_folder) is None
    layout.folder.mkdir()
    (layout.folder / "openstack.json").write_text('{"schema_version": 1')
    with pytest.raises(InputError, match=r"openstack\.json: not the journal of an OpenStack"):
        Layout.read(layout.lab_folder)


def test_every_configuration_file_is_valid(written: Layout) -> None:
    files = [file for file in (written.folder / "etc").iterdir() if file.suffix in {".conf", ".ini"}]
    services = [file for file in files if file.stem not in {"dnsmasq", "libvirtd", "rabbitmq"}]
    assert len(services) == 10
    for file in services:
        parsed = configparser.RawConfigParser(strict=True)  # no duplicate sections or options
        parsed.read_string(file.read_text())
        assert file.stat().st_mode & 0o077 == 0, f"{file.name} holds passwords"


def test_each_back_end_has_a_plain_and_a_multiattach_volume_type(layout: Layout) -> None:
    found = {one.name: (one.backend, one.pool, one.multiattach) for one in layout.volume_types}
    assert found == {
        "hdd": ("hdd", "volumes-hdd", False),
        "ssd": ("ssd", "volumes-ssd", False),
        "hdd-multiattach": ("hdd", "volumes-hdd", True),
        "ssd-multiattach": ("ssd", "volumes-ssd", True),
    }


def test_cinder_has_a_back_end_for_each_device_class(written: Layout) -> None:
    parsed = configparser.RawConfigParser()
    parsed.read(written.conf("cinder"))
    assert parsed["DEFAULT"]["enabled_backends"] == "hdd,ssd"
    assert {name: parsed[name]["rbd_pool"] for name in ("hdd", "ssd")} == dict(written.pools)


def test_clouds_yaml_has_an_administrator_and_an_ordinary_project(written: Layout) -> None:
    clouds = yaml.safe_load(written.clouds_yaml.read_text())["clouds"]
    assert {name: cloud["auth"]["project_name"] for name, cloud in clouds.items()} == {
        "cephfit-lab-paper": "admin",
        "cephfit-lab-paper-user": "cephfit",
    }
    assert written.clouds_yaml.stat().st_mode & 0o077 == 0
    assert replace(written, name="default").admin_cloud == "cephfit-lab"


def test_arguments_have_no_secrets_and_daemons_listen_on_loopback_or_for_guests(layout: Layout) -> None:
    parts = LabCloud(layout).components
    argvs = [service.argv for part in parts for service in part.services]
    argvs += [migration.argv for part in parts for migration in part.migrations]
    argvs += [service.argv for service in infrastructure.services(layout)]
    words = [word for argv in argvs for word in argv]
    assert not [word for word in words if "secret-of-" in word]
    sockets = [words[i + 1] for i, word in enumerate(words) if word == "--http-socket"]
    assert {socket.partition(":")[0] for socket in sockets} == {"127.0.0.1", "10.77.9.1"}
    assert {socket for socket in sockets if socket.startswith("10.")} == {
        f"10.77.9.1:{layout.ports[api]}" for api in ("heat", "heat_cfn")
    }


def test_interface_names_depend_on_the_folder_and_are_valid() -> None:
    ends = interface_names(Path("/var/lib/labs/one"))
    assert ends == interface_names(Path("/var/lib/labs/one"))
    assert not set(ends) & set(interface_names(Path("/var/lib/labs/two")))
    assert all(len(end) <= 15 for end in ends)


def test_the_guests_network_is_not_in_use_by_this_machine_or_a_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = '[{"dst":"default"},{"dst":"10.77.0.0/24"},{"dst":"10.77.2.0/23"},{"dst":"192.0.2.0/24"}]'
    monkeypatch.setattr(infrastructure, "run", lambda argv: routes)
    assert infrastructure.pick_network() == "10.77.1"
    assert infrastructure.pick_network(["10.77.1"]) == "10.77.4"


def test_a_lab_with_an_openstack_cannot_be_in_run() -> None:
    with pytest.raises(InputError, match="cannot be below /run"):
        LabCloud.lay_out("x", Path("/run/user/0/lab"), range(len(PORT_NAMES)), ("hdd",))


def test_missing_kernel_support_for_networks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infrastructure, "_LINKS", "link add cephfit0 type no-such-thing\n")
    with pytest.raises(HostError, match="no network for guests can be created here"):
        infrastructure.require_links()


def test_concurrently_created_labs_use_different_networks(tmp_path: Path) -> None:
    names = [f"moment-{n}" for n in range(4)]

    def network_of(name: str) -> str:
        folder = registry.claim(name, tmp_path / name)
        return LabCloud.lay_out(name, folder, range(len(PORT_NAMES)), ("hdd",)).layout.network

    try:
        with ThreadPoolExecutor(len(names)) as pool:
            assert len(set(pool.map(network_of, names))) == len(names)
    finally:
        for name in names:
            registry.release(name)


def test_missing_packages_are_named_with_the_way_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        components, "find_program", lambda name: None if name == "heat-engine" else "/usr/bin/true"
    )
    monkeypatch.setattr(Path, "exists", lambda self: True)
    with pytest.raises(
        HostError, match=r"packages of OpenStack are missing: heat-engine\n  .*make setup-openstack"
    ):
        components.require_packages()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[int]:
    """A grandchild process without the lab in its arguments, which inherited the mark."""
    code = (
        "import subprocess, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, processes.MARK: str(tmp_path / "lab")}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        while not processes.command_line(pid):
            time.sleep(0.01)  # during exec(2)
        yield pid
        processes.kill([parent.pid, pid])


def test_a_process_is_found_by_its_inherited_mark(child: int, tmp_path: Path) -> None:
    assert processes.owned(child, tmp_path / "lab")
    assert child in processes.of_folder(tmp_path / "lab")
    assert not processes.owned(child, tmp_path / "la"), "another lab, whose name begins alike"
    assert not processes.owned(child, tmp_path / "lab" / "openstack")

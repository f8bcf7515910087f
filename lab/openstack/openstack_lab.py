"""The lab's OpenStack as a whole: create, start, stop and query; and the Ceph pools and key that Cinder uses."""

import secrets
import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.cloud.guests import guest_image
from cephfit.cloud.guests.guest_image import GuestImage
from cephfit.core.errors import InputError
from cephfit.core.protocols import Progress
from cephfit.lab import registry
from cephfit.lab.daemons import processes
from cephfit.lab.daemons.ceph_daemons import write_secret
from cephfit.lab.openstack import cloud_resources, components, infrastructure
from cephfit.lab.openstack.components import COMPONENTS, Component, install_drivers
from cephfit.lab.openstack.infrastructure import ceph_key_file
from cephfit.lab.openstack.layout import PORT_NAMES, SECRET_NAMES, Layout
from cephfit.lab.openstack.services import CloudStatus, MountNamespace, Service, Services

CLIENT = "client.cinder"
PG_NUM = 16


def pool_name(device_class: str) -> str:
    """Return the Ceph pool of a device class's volumes."""
    return f"volumes-{device_class}"


def create(layout: Layout, *, conf: Path, fsid: str, mon_port: int) -> None:
    """Create a pool for each back end with the CRUSH rule of its device class, and the files of their user.

    Args:
        conf: the lab's ceph.conf.
    """
    admin = RadosAdmin(conf)
    try:
        for device_class, pool in layout.pools.items():
            admin.command("osd pool create", pool=pool, pg_num=PG_NUM, pgp_num=PG_NUM, rule=device_class)
            admin.command("osd pool application enable", pool=pool, app="rbd")
        # Pools that a sweep creates later are accessible as well: a lab has one user.
        caps = ["mon", "profile rbd", "osd", "profile rbd", "mgr", "profile rbd"]
        (entry,) = admin.command("auth get-or-create", entity=CLIENT, caps=caps)
    finally:
        admin.close()
    home = layout.home("ceph")
    home.mkdir(parents=True, exist_ok=True)
    write_secret(home / f"ceph.{CLIENT}.keyring", f"[{CLIENT}]\n\tkey = {entry['key']}\n")
    write_secret(ceph_key_file(layout), entry["key"])
    components.write(layout, home / "ceph.conf", "ceph.conf", fsid=fsid, mon_port=mon_port)


_HOLDER = "namespace"
_API_SECONDS = 300.0
_MIGRATION_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class CephAccess:
    """Access of the OpenStack to the lab's Ceph."""

    conf: Path
    fsid: str
    mon_port: int


class LabCloud:
    """The OpenStack of one lab.

    Like that of the lab, its state is in its folder; an object of this class holds nothing open.

    Args:
        layout: its journal.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._running = Services(layout)

    @property
    def components(self) -> tuple[Component, ...]:
        return tuple(component(self.layout) for component in COMPONENTS)

    @property
    def _service_names(self) -> tuple[str, ...]:
        infra = (service.name for service in infrastructure.services(self.layout))
        return (*infra, *(service.name for part in self.components for service in part.services))

    @classmethod
    def lay_out(
        cls, name: str, lab_folder: Path, ports: Sequence[int], device_classes: Sequence[str]
    ) -> "LabCloud":
        """Choose ports, names and secrets, and write the journal; nothing is created yet.

        Args:
            ports: free ones, as many as ``PORT_NAMES``.
            device_classes: of the lab's OSDs, each with a CRUSH rule of its name.

        Raises:
            InputError: it cannot be in this folder.
        """
        if Path("/run") in lab_folder.parents:
            raise InputError(
                "a lab with an OpenStack cannot be below /run, because its services see a private /run",
                where=str(lab_folder),
                remedy="choose another --folder",
            )
        with registry.choosing():
            others = [place for other in registry.lab_names() for place in [registry.folder_of(other)] if place]
            taken = [other.network for place in others for other in [Layout.read(place)] if other is not None]
            layout = Layout(
                name=name,
                lab_folder=lab_folder,
                ports=dict(zip(PORT_NAMES, ports, strict=True)),
                secrets={secret: secrets.token_hex(16) for secret in SECRET_NAMES},
                rbd_secret_uuid=str(uuid.uuid4()),
                network=infrastructure.pick_network(taken),
                pools={device_class: pool_name(device_class) for device_class in device_classes},
            )
            layout.folder.mkdir(exist_ok=True)
            # dnsmasq, which is not root, must enter it; secrets are in files that only root can read.
            layout.folder.chmod(0o711)
            layout.write()
        return cls(layout)

    @classmethod
    def open(cls, lab_folder: Path) -> "LabCloud | None":
        """Return the OpenStack of a lab; None if the lab has none.

        Raises:
            InputError: its journal cannot be read.
        """
        layout = Layout.read(lab_folder)
        return None if layout is None else cls(layout)

    # Making.

    def make(self, ceph: CephAccess, progress: Progress) -> None:
        """Create it on a healthy Ceph; return when every component is ready.

        Raises:
            CephfitError: a component did not start; the caller must remove what was created.
        """
        components.write_all(self.layout, self.components)
        infrastructure.prepare(self.layout)
        install_drivers(self.layout)
        create(self.layout, conf=ceph.conf, fsid=ceph.fsid, mon_port=ceph.mon_port)
        infrastructure.create_cable(self.layout)
        progress.advance(detail="pools and files")
        namespace = self._hold_namespace()
        infrastructure.start(self.layout, self._running, namespace)
        infrastructure.keep_ceph_key(self.layout, namespace)
        databases = [name for part in self.components for name in part.databases]
        infrastructure.create_databases(self.layout, namespace, databases)
        progress.advance(detail="MariaDB, RabbitMQ, memcached, libvirt")
        guest_image = self._make_components(namespace, progress)
        cloud_resources.wait_ready(
            self.layout,
            alive=self.require_alive,
            on_ready=lambda name: progress.advance(detail=f"{name} is ready"),
        )
        cloud_resources.create(self.layout, guest_image)
        shutil.rmtree(guest_image.folder)
        cloud_resources.set_quotas(self.layout)
        self.layout = replace(self.layout, ready=True)
        self.layout.write()
        progress.advance(detail="flavors, image, network, volume types")

    def _make_components(self, namespace: MountNamespace, progress: Progress) -> GuestImage:
        """Migrate and start the components concurrently; create Keystone's users and catalogue as soon as it runs.

        Returns:
            The guests' image, which is built meanwhile.
        """
        identity, *others = self.components
        with ThreadPoolExecutor(max_workers=3) as pool:
            registered = pool.submit(self._make_identity, identity, namespace)
            made: list[Future[None]] = [pool.submit(self._make_component, p, namespace) for p in others]
            built = pool.submit(guest_image.build, self.layout.folder / "image")
            try:
                for future in (registered, *made):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.kill(self.pids())  # so that the other threads stop waiting
                raise
        progress.advance(detail="databases and APIs")
        self._start_agents(namespace)
        progress.advance(detail="agents")
        return built.result()

    def _make_identity(self, part: Component, namespace: MountNamespace) -> None:
        self._make_component(part, namespace)
        self._await_apis(part)
        cloud_resources.register(self.layout)

    def _make_component(self, part: Component, namespace: MountNamespace) -> None:
        for migration in part.migrations:
            program = Service(f"{part.name}-migration", migration.argv, migration.environment)
            self._running.run_to_end(program, namespace, seconds=_MIGRATION_SECONDS)
        for service in part.apis:
            self._running.start(service, namespace)

    def _await_apis(self, part: Component) -> None:
        for service in part.apis:
            self._running.wait_listening(service, seconds=_API_SECONDS)

    def _start_agents(self, namespace: MountNamespace) -> None:
        for part in self.components:
            self._await_apis(part)
        for part in self.components:
            for service in part.agents:
                self._running.start(service, namespace)

    def _hold_namespace(self) -> MountNamespace:
        """Return the namespace; create it again if its holder has died."""
        known = self._running.pid(_HOLDER)
        if known is not None:
            return MountNamespace(self.layout, known)
        holder = self._running.start(Service(_HOLDER, MountNamespace.holder_argv()), None)
        namespace = MountNamespace(self.layout, holder)
        namespace.wait_separate()
        namespace.mount_folders()
        return namespace

    # Starting and stopping.

    def start(self) -> None:
        """Start all daemons that do not run, for example after a reboot. Guests stay off until they are started.

        Raises:
            ClusterError: a component does not become ready.
        """
        if self._running.pid(_HOLDER) is None:
            self.stop()  # new processes cannot join the old namespace without its holder
        infrastructure.create_cable(self.layout)
        namespace = self._hold_namespace()
        infrastructure.start(self.layout, self._running, namespace)
        infrastructure.keep_ceph_key(self.layout, namespace)
        for part in self.components:
            for service in part.apis:
                self._running.start(service, namespace)
        self._await_apis(self.components[0])
        self._await_apis(next(part for part in self.components if part.name == "neutron"))
        infrastructure.create_bridge(self.layout, cloud_resources.network_id(self.layout))
        self._start_agents(namespace)
        cloud_resources.wait_ready(self.layout, alive=self.require_alive)

    def stop(self) -> None:
        """Stop all daemons and guests, and remove the network; volumes, images and databases stay."""
        agents = [service.name for part in self.components for service in part.agents]
        self._running.stop(agents)
        self._running.stop([service.name for part in self.components for service in part.apis])
        self._running.stop([service.name for service in infrastructure.services(self.layout)])
        processes.kill(self.pids())
        infrastructure.remove(self.layout.lab_folder)

    def pids(self) -> list[int]:
        """All its living processes, including guests, without those of the lab's Ceph."""
        folder = self.layout.lab_folder
        marked = [pid for pid in processes.of_folder(folder) if processes.is_marked(pid, folder)]
        return sorted({*marked, *processes.of_folder(self.layout.folder)})

    # Asking.

    def require_alive(self) -> None:
        """Check that all daemons run.

        Raises:
            ClusterError: a daemon died; with the end of its log.
        """
        dead = [name for name in self._service_names if self._running.pid(name) is None]
        if dead:
            raise self._running.failure(dead[0], "died")

    def status(self) -> CloudStatus:
        """Return the current status."""
        return CloudStatus(
            ready=self.layout.ready,
            clouds_yaml=str(self.layout.clouds_yaml),
            clouds=(self.layout.admin_cloud, self.layout.user_cloud),
            keystone=self.layout.url("keystone"),
            guests_network=f"{self.layout.network}.0/{infrastructure.PREFIX_LENGTH}",
            volume_types={one.name: one.pool for one in self.layout.volume_types},
            daemons=self._running.states(self._service_names),
        )

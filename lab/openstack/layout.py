"""The layout of one lab's OpenStack (folders, ports, names and secrets), stored as its journal."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import quote

from cephfit.core.errors import InputError
from cephfit.core.units import GIB
from cephfit.lab.daemons.ceph_daemons import write_secret

SCHEMA_VERSION = 1

PORT_NAMES = (
    "keystone",
    "glance",
    "placement",
    "nova",
    "metadata",
    "neutron",
    "cinder",
    "heat",
    "heat_cfn",
    "rabbitmq",
    "rabbitmq_distribution",
    "epmd",
    "memcached",
)
"""Services that listen on 127.0.0.1."""

N_STEPS = 11
"""Number of progress steps when an OpenStack is created."""

FREE_NBYTES = 3 * GIB
"""Free disk space required in addition to that of Ceph: databases, logs, images, guests' root disks."""

SECRET_NAMES = ("service", "admin", "user", "metadata", "rabbitmq", "heat_domain", "heat_encryption")

_API_PATHS = {
    "keystone": "/v3",
    "nova": "/v2.1",
    "cinder": "/v3/%(project_id)s",
    "heat": "/v1/%(project_id)s",
    "heat_cfn": "/v1",
}


MULTIATTACH_SUFFIX = "-multiattach"
"""End of the names of the volume types whose volumes several guests may use at once."""


@dataclass(frozen=True, slots=True)
class LabVolumeType:
    """A Cinder volume type of the lab.

    Attributes:
        name: of the type.
        backend: name of its back end, which is the device class.
        pool: Ceph pool of its volumes.
        multiattach: whether several guests may use a volume at once.
    """

    name: str
    backend: str
    pool: str
    multiattach: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one lab's OpenStack, chosen before any part is created.

    Attributes:
        name: of the lab.
        lab_folder: of the lab.
        ports: on 127.0.0.1, by ``PORT_NAMES``.
        secrets: by ``SECRET_NAMES``; never in an argument or a log.
        rbd_secret_uuid: id of libvirt's secret with the key of ``client.cinder``.
        network: the first three bytes of the guests' network, a /24: ``10.77.0``.
        pools: device class to the Ceph pool of its Cinder back end, which has the name of the class.
        ready: it was complete once.
    """

    name: str
    lab_folder: Path
    ports: Mapping[str, int]
    secrets: Mapping[str, str]
    rbd_secret_uuid: str
    network: str
    pools: Mapping[str, str]
    ready: bool = False

    @property
    def folder(self) -> Path:
        return folder_of(self.lab_folder)

    @property
    def region(self) -> str:
        return "RegionOne"

    @property
    def host(self) -> str:
        """The name of the only host, independent of the machine's name."""
        return f"cephfit-{self.name}"

    def home(self, service: str) -> Path:
        """Folder with the state of a service."""
        return self.folder / "var" / service

    def conf(self, name: str) -> Path:
        """A service's configuration file, by the service's name or the file's."""
        return self.folder / "etc" / (name if "." in name else f"{name}.conf")

    def log(self, service: str) -> Path:
        return self.folder / "log" / f"{service}.log"

    @property
    def clouds_yaml(self) -> Path:
        return self.lab_folder / "clouds.yaml"

    @property
    def admin_cloud(self) -> str:
        """Its name in clouds.yaml; several labs may be listed in one file."""
        return "cephfit-lab" if self.name == "default" else f"cephfit-lab-{self.name}"

    @property
    def user_cloud(self) -> str:
        return f"{self.admin_cloud}-user"

    @property
    def volume_types(self) -> tuple["LabVolumeType", ...]:
        """Two types for each back end: a plain one, and one whose volumes several guests may use at once."""
        plain = [LabVolumeType(backend, backend, pool) for backend, pool in self.pools.items()]
        return (*plain, *(replace(one, name=one.name + MULTIATTACH_SUFFIX, multiattach=True) for one in plain))

    # The network.

    @property
    def gateway(self) -> str:
        """This machine's address in the guests' network."""
        return f"{self.network}.1"

    @property
    def host_end(self) -> str:
        return interface_names(self.lab_folder)[0]

    @property
    def bridge_end(self) -> str:
        return interface_names(self.lab_folder)[1]

    # Addresses of services.

    def url(self, service: str) -> str:
        """URL of an API, as in the catalogue."""
        return f"http://127.0.0.1:{self.ports[service]}{_API_PATHS.get(service, '')}"

    @property
    def database_socket(self) -> str:
        """In the private /run, whose paths are short for every lab folder."""
        return "/run/mariadb.sock"

    def database_url(self, name: str) -> str:
        """For SQLAlchemy. Without password: the server gets the user of the socket's peer from the kernel."""
        return f"mysql+pymysql://root@localhost/{name}?unix_socket={quote(self.database_socket)}&charset=utf8"

    @property
    def message_url(self) -> str:
        return f"rabbit://cephfit:{self.secrets['rabbitmq']}@127.0.0.1:{self.ports['rabbitmq']}/"

    # The journal.

    def write(self) -> None:
        """Write the journal atomically."""
        document = {**asdict(self), "lab_folder": str(self.lab_folder), "schema_version": SCHEMA_VERSION}
        file = _journal(self.lab_folder)
        temporary = file.with_suffix(".new")
        write_secret(temporary, json.dumps(document, indent=1))
        with temporary.open() as stream:
            os.fsync(stream.fileno())
        temporary.replace(file)

    @classmethod
    def read(cls, lab_folder: Path) -> "Layout | None":
        """Return the journal of a lab's OpenStack; None if the lab has none.

        Raises:
            InputError: it cannot be read.
        """
        file = _journal(lab_folder)
        try:
            document = json.loads(file.read_text())
            version = document.pop("schema_version")
            if version != SCHEMA_VERSION:
                raise InputError(
                    f"schema version {version}, this cephfit knows {SCHEMA_VERSION}",
                    where=str(file),
                    remedy="remove this lab with the version of cephfit that created it",
                )
            return cls(**{**document, "lab_folder": lab_folder})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not the journal of an OpenStack: {error!r}", where=str(file)) from None


def folder_of(lab_folder: Path) -> Path:
    """Return the folder of a lab's OpenStack, which holds everything except its clouds.yaml."""
    return lab_folder / "openstack"


def _journal(lab_folder: Path) -> Path:
    return folder_of(lab_folder) / "openstack.json"


def interface_names(lab_folder: Path) -> tuple[str, str]:
    """Return the veth pair between this machine and the guests' bridge: the host's end, the bridge's end.

    The names depend only on the folder's path, so that they can be found after the folder is deleted. Linux allows
    15 bytes.
    """
    digest = hashlib.sha256(os.fsencode(lab_folder)).hexdigest()[:10]
    return f"cf{digest}h", f"cf{digest}b"

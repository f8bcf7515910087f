"""What was chosen for one lab's OpenStack: folders, ports, names and secrets. Its journal."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from cephfit.core.errors import InputError
from cephfit.core.units import GIB
from cephfit.lab.ceph_daemons import write_secret

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
"""What listens on 127.0.0.1."""

N_STEPS = 11
"""How often making an OpenStack advances the progress."""

FREE_NBYTES = 3 * GIB
"""What the folder's disk must have free beside what Ceph needs: databases, logs, images, guests' root disks."""

SECRET_NAMES = ("service", "admin", "user", "metadata", "rabbitmq", "heat_domain", "heat_encryption")

_API_PATHS = {
    "keystone": "/v3",
    "nova": "/v2.1",
    "cinder": "/v3/%(project_id)s",
    "heat": "/v1/%(project_id)s",
    "heat_cfn": "/v1",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """One lab's OpenStack, as it was laid out before anything of it was made.

    Attributes:
        name: the lab's.
        lab_folder: the lab's.
        ports: on 127.0.0.1, by ``PORT_NAMES``.
        secrets: by ``SECRET_NAMES``; never in an argument or a log.
        rbd_secret_uuid: under which libvirt keeps the key of ``client.cinder``.
        network: the first three bytes of the guests' network, a /24: ``10.77.0``.
        pools: device class to the Ceph pool of its Cinder back end; the class names back end and volume type.
        ready: it was whole once.
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
        """The name of the only host, the same after a change of the machine's own."""
        return f"cephfit-{self.name}"

    def home(self, service: str) -> Path:
        """Where a service keeps its state."""
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

    # How services find each other.

    def url(self, service: str) -> str:
        """Of an API, as the catalogue has it."""
        return f"http://127.0.0.1:{self.ports[service]}{_API_PATHS.get(service, '')}"

    @property
    def database_socket(self) -> str:
        """In the private /run, whose paths are short whatever the lab's folder is called."""
        return "/run/mariadb.sock"

    def database_url(self, name: str) -> str:
        """For SQLAlchemy. No password: the server asks the kernel who is at the other end of the socket."""
        return f"mysql+pymysql://root@localhost/{name}?unix_socket={quote(self.database_socket)}&charset=utf8"

    @property
    def message_url(self) -> str:
        return f"rabbit://cephfit:{self.secrets['rabbitmq']}@127.0.0.1:{self.ports['rabbitmq']}/"

    # The journal.

    def write(self) -> None:
        """Write the journal as a whole or not at all."""
        document = {**asdict(self), "lab_folder": str(self.lab_folder), "schema_version": SCHEMA_VERSION}
        file = _journal(self.lab_folder)
        temporary = file.with_suffix(".new")
        write_secret(temporary, json.dumps(document, indent=1))
        with temporary.open() as stream:
            os.fsync(stream.fileno())
        temporary.replace(file)

    @classmethod
    def read(cls, lab_folder: Path) -> "Layout | None":
        """The journal of a lab's OpenStack; None if the lab has none.

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
                    remedy="use the cephfit that made this lab to take it down",
                )
            return cls(**{**document, "lab_folder": lab_folder})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not the journal of an OpenStack: {error!r}", where=str(file)) from None


def folder_of(lab_folder: Path) -> Path:
    """All of a lab's OpenStack but its clouds.yaml lies here."""
    return lab_folder / "openstack"


def _journal(lab_folder: Path) -> Path:
    return folder_of(lab_folder) / "openstack.json"


def interface_names(lab_folder: Path) -> tuple[str, str]:
    """The two ends of the cable between this machine and the guests' bridge: the host's, the bridge's.

    They follow from the folder alone, so that they are found also when the folder is gone. Linux allows 15 bytes.
    """
    digest = hashlib.sha256(os.fsencode(lab_folder)).hexdigest()[:10]
    return f"cf{digest}h", f"cf{digest}b"

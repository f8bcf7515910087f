"""What every way from an RBD image to a block device has in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ImageAddress:
    """How to reach an image.

    Attributes:
        pool: name.
        image: name.
        conf: ceph.conf of the client.
        client_id: such as ``admin``.
        nbytes: size.
    """

    pool: str
    image: str
    conf: Path
    client_id: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.pool}/{self.image}"


class ExportPath(ABC):
    """One way. An instance stands for one image; all state is on disk and in the kernel.

    Args:
        home: folder of this image's own; whoever calls makes and removes it.
        address: the image.
    """

    name: ClassVar[str]
    reads_client_options: ClassVar[bool]
    """Whether librbd is in the path, so that client options such as ``rbd_cache`` take effect."""

    def __init__(self, home: Path, address: ImageAddress) -> None:
        self._home = home
        self._address = address

    @classmethod
    @abstractmethod
    def usable(cls) -> bool:
        """Whether this machine's kernel allows it."""

    @abstractmethod
    def device(self) -> Path | None:
        """The block device if the image is attached and everything behind it lives; None otherwise."""

    @abstractmethod
    def attach(self) -> Path:
        """Attach; nothing of this image is attached before.

        Raises:
            HostError: this machine lacks something.
            ClusterError: the image cannot be opened.
        """

    @abstractmethod
    def detach(self) -> None:
        """Detach whatever there is, whole or in pieces; also if there is nothing."""

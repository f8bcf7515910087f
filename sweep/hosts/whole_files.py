"""Files of a host that are read to the last byte and replaced at once, such as a ceph.conf."""

import base64
from pathlib import PurePosixPath

from cephfit.errors import HostError
from cephfit.sweep.hosts.host import Host, HostRefusedError, checked

_DRAFT = ".cephfit-new"


def read_bytes(host: Host, path: PurePosixPath) -> bytes:
    """The content of a file, whatever bytes it has.

    Raises:
        HostError: it is not there, or must not be read.
    """
    return base64.b64decode(checked(host, ["base64", "--wrap=0", "--", str(path)]))


def replace(host: Host, path: PurePosixPath, content: bytes) -> None:
    """Give a file that is there another content: whoever opens it gets the old or the new one, also after a crash.

    Owner, mode and extended attributes stay; a symbolic link goes on leading to the file. Called again after a
    kill at any instant, it leaves nothing beside the file.

    Raises:
        HostRefusedError: the host refuses.
        HostError: it cannot be reached.
    """
    real = PurePosixPath(
        checked(host, ["readlink", "--canonicalize-existing", "--verbose", "--", str(path)]).rstrip("\n")
    )
    draft = _draft(real)
    try:
        # The copy has the file's owner and mode before it has any content that others must not read.
        checked(host, ["cp", "--preserve=all", "--no-target-directory", "--", str(real), str(draft)])
        checked(host, ["dd", f"of={draft}", "conv=fsync", "status=none"], stdin=content)
        if read_bytes(host, draft) != content:
            raise HostRefusedError(
                "the host wrote something else than it was given", where=f"{host.name}: {draft}"
            )
        checked(host, ["mv", "--force", "--no-target-directory", "--", str(draft), str(real)])
        checked(host, ["sync", "--", str(real.parent)])
    except HostRefusedError:
        remove_draft(host, path)
        raise


def remove_draft(host: Host, path: PurePosixPath) -> None:
    """Remove what a killed ``replace`` left beside a file; nothing if it left nothing.

    Raises:
        HostError: it cannot be removed.
    """
    try:
        real = checked(host, ["readlink", "--canonicalize-existing", "--verbose", "--", str(path)]).rstrip("\n")
    except HostRefusedError:
        return  # without the file there is nothing beside it
    try:
        checked(host, ["rm", "--force", "--", str(_draft(PurePosixPath(real)))])
    except HostRefusedError as error:
        raise HostError(f"a draft cannot be removed: {error.what}", where=f"{host.name}: {path}") from None


def _draft(real: PurePosixPath) -> PurePosixPath:
    return real.with_name(real.name + _DRAFT)

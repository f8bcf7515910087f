"""Upload of the guest image to a cloud's Glance, and its deletion."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.cloud_connection import made_once, persistently
from cephfit.cloud.guests.guest_image import MIN_RAM_MIB, PROPERTIES, GuestImage
from cephfit.core.errors import ClusterError, InputError

DEFAULT_NAME = "cephfit-guest"
WITH_POSTGRESQL = "cephfit-guest-postgresql"
_DATABASE_RAM_MIB = 512
_PART_OF = "cephfit_image"
"""Property of the three images: the name of the image that they form. Other images have it only as copies."""
_SHA256 = "cephfit_sha256"
"""Property: checksum of the uploaded file."""
_SENDING = "cephfit_sending"
"""Property: id of the uploading call, by which it finds its image although the answer was lost."""
_FIO_VERSION = "cephfit_fio_version"
_BOOTS_FROM = ("kernel_id", "ramdisk_id")
_GOING = ("deleted", "pending_delete")
_COPIED = ("base_image_ref", "block_device_mapping")
"""Properties that Nova adds to the image of a guest (a snapshot; a shelved guest), together with those of the
guest's image. It also sets ``image_type``, except where the guest boots from a volume."""
_UNDER_WAY = ("queued", "saving", "uploading", "importing")
_UNDER_WAY_SECONDS = 600.0
"""Time since its last change in which an image may be under upload: Glance does not report the progress."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An image in Glance.

    Attributes:
        id: for the creation of servers.
        changed: names of uploaded or changed images; empty where everything existed.
    """

    id: str
    changed: tuple[str, ...]


def upload(
    cloud: Connection, image: GuestImage, *, name: str = "", visibility: str = "private", **tags: str
) -> Uploaded:
    """Ensure kernel, RAM disk and disk as three images; servers are created from the last.

    Complete parts of the same build from an earlier call in this project are used. Parts of a killed call are
    replaced. Another build's kernel and RAM disk replace the former ones, and the image keeps its id.

    Args:
        cloud: connection.
        image: a built image.
        name: of the last image; empty for ``name_of(image)``.
        visibility: ``public`` needs an administrator. A public image stays public.
        tags: more properties for each, such as a run's id.

    Raises:
        InputError: another image has this name, which cephfit did not upload or which is another project's.
        ClusterError: Glance refuses, or another upload of the image is running.
    """
    name = name or name_of(image)
    # Images from uploads that begin after this point are not in the list, and so not deleted.
    former = _parts(cloud, name)
    whole = _whole_image(cloud, name, former)
    if whole is not None and visibility != "public":
        visibility = str(whole.visibility)
    common: dict[str, Any] = {"visibility": visibility, _PART_OF: name, **tags}
    kernel = _part(cloud, f"{name}-kernel", image.kernel, {**common, "disk_format": "aki"}, former)
    ramdisk = _part(cloud, f"{name}-ramdisk", image.ramdisk, {**common, "disk_format": "ari"}, former)
    wanted = {"visibility": visibility, _PART_OF: name, **_properties(image, kernel.id, ramdisk.id)}
    if whole is None:
        made = Uploaded(_send(cloud, name, image.disk, {**common, **wanted, "disk_format": "raw"}), (name,))
    elif any(property_of(whole, key) != str(value) for key, value in wanted.items()):
        # One call, so that servers boot from either the former build or this one.
        _change(cloud, whole, wanted)
        made = Uploaded(str(whole.id), (name,))
    else:
        made = Uploaded(str(whole.id), ())
    for one in former:
        if one.id not in (made.id, kernel.id, ramdisk.id):
            _delete(cloud, one)
    return Uploaded(made.id, kernel.changed + ramdisk.changed + made.changed)


def remove(cloud: Connection, name: str) -> tuple[str, ...]:
    """Delete an image that `upload` created, with all its parts; return the names of the deleted images.

    Raises:
        ClusterError: Glance refuses, for example because servers use it.
    """
    # First the image that servers are created from: it does not work without the others.
    parts = sorted(_parts(cloud, name), key=lambda part: bool(part.name != name))
    for part in parts:
        _delete(cloud, part)
    return tuple(str(part.name) for part in parts)


def name_of(image: GuestImage) -> str:
    """Return the default name of an image in Glance."""
    return WITH_POSTGRESQL if image.postgresql else DEFAULT_NAME


def _properties(image: GuestImage, kernel_id: str, ramdisk_id: str) -> dict[str, Any]:
    """Return a build's properties for Glance and Nova."""
    return {
        "kernel_id": kernel_id,
        "ramdisk_id": ramdisk_id,
        "min_ram": _DATABASE_RAM_MIB if image.postgresql else MIN_RAM_MIB,
        _FIO_VERSION: image.fio_version,
        **({"cephfit_postgresql": image.postgresql} if image.postgresql else {}),
        **PROPERTIES,
    }


def _whole_image(cloud: Connection, name: str, parts: Sequence[Any]) -> Any | None:
    """Return the part that servers are created from; None if it is missing or incomplete.

    Raises:
        InputError: an image that cephfit did not upload has the name, which must be unique.
        ClusterError: an administrator deactivated the image, or a part is under upload.
    """
    ours = {part.id for part in parts}
    for one in persistently(lambda: list(cloud.image.images(name=name)), where="images"):
        if one.id not in ours and one.status == "active":
            whose = "of this project" if one.owner == cloud.current_project_id else f"of project {one.owner}"
            raise InputError(
                f"an image {name} {whose} already exists, which `cephfit image upload` did not upload",
                where=f"cloud {cloud.name}",
                remedy=f"use that one (image={one.id} in the target), or choose another name: --name NAME",
            )
    for part in parts:
        if part.name == name and part.status == "deactivated":
            raise ClusterError(
                f"image {name} was deactivated",
                where=f"cloud {cloud.name}",
                remedy=f"an administrator can open it again: openstack image set --activate {part.id}",
            )
        if _is_under_way(part):
            raise ClusterError(
                f"image {part.name} is being uploaded, or its upload was stopped recently",
                where=f"cloud {cloud.name}, status {part.status} since {part.updated_at}",
                remedy=f"wait for it, {_UNDER_WAY_SECONDS / 60:.0f} min at most; if no upload is running: "
                f"openstack image delete {part.id}",
            )
    return next((part for part in parts if part.name == name and part.status == "active"), None)


def _part(cloud: Connection, name: str, file: Path, wanted: Mapping[str, Any], former: Sequence[Any]) -> Uploaded:
    """Return the kernel or RAM disk image of this file: an existing one, or a new upload."""
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    for one in former:
        if one.name == name and one.status == "active" and property_of(one, _SHA256) == sha256:
            if wanted["visibility"] != one.visibility:
                _change(cloud, one, {"visibility": wanted["visibility"]})
            return Uploaded(str(one.id), ())
    return Uploaded(_send(cloud, name, file, {**wanted, _SHA256: sha256}), (name,))


def _send(cloud: Connection, name: str, file: Path, wanted: Mapping[str, Any]) -> str:
    sending = str(uuid.uuid4())
    more: dict[str, Any] = {**wanted, _SENDING: sending}
    more["container_format"] = "bare" if wanted["disk_format"] == "raw" else wanted["disk_format"]
    more |= {"use_import": False, "allow_duplicates": True, "wait": True}

    def make() -> str:
        return str(cloud.image.create_image(name, filename=str(file), **more).id)

    def find() -> str | None:
        """Return the complete image of an earlier attempt; delete an incomplete one."""
        found = None
        for one in _parts(cloud, str(wanted[_PART_OF])):
            if property_of(one, _SENDING) == sending:
                if one.status == "active":
                    found = str(one.id)
                else:
                    _delete(cloud, one)
        return found

    return made_once(make, find, where=f"image {name}")


def _parts(cloud: Connection, name: str) -> list[Any]:
    """Return the parts that `upload` created in this project: only these images are changed or deleted.

    An older version marked only the image, which names its kernel and RAM disk by their ids.
    """
    mine = {"owner": cloud.current_project_id}
    names = (name, f"{name}-kernel", f"{name}-ramdisk")
    candidates = [
        one
        for one in persistently(lambda: list(cloud.image.images(**mine)), where="images")
        if one.name in names and one.status not in _GOING and not _is_copy(one)
    ]
    unmarked = [one for one in candidates if one.name == name and not property_of(one, _PART_OF)]
    of_older = [one for one in unmarked if property_of(one, _FIO_VERSION)]
    ids = {one.id for one in of_older} | {property_of(one, key) for one in of_older for key in _BOOTS_FROM}
    return [one for one in candidates if property_of(one, _PART_OF) == name or one.id in ids]


def _is_copy(one: Any) -> bool:
    """Return whether an image is a copy of a guest and not a part of an upload."""
    return property_of(one, "image_type") == "snapshot" or any(key in (one.properties or {}) for key in _COPIED)


def _is_under_way(one: Any) -> bool:
    age = datetime.now(UTC) - datetime.fromisoformat(str(one.updated_at))
    return one.status in _UNDER_WAY and age.total_seconds() < _UNDER_WAY_SECONDS


def property_of(one: Any, key: str) -> str:
    """Return a property of an image. The SDK's version determines which properties are attributes."""
    value = getattr(one, key, None)
    return str((one.properties or {}).get(key, "") if value is None else value)


def _change(cloud: Connection, one: Any, wanted: Mapping[str, Any]) -> None:
    persistently(lambda: cloud.image.update_image(one.id, **wanted), where=f"image {one.name}")


def _delete(cloud: Connection, one: Any) -> None:
    # The SDK treats a missing image as deleted.
    persistently(lambda: cloud.image.delete_image(one.id), where=f"image {one.name}")

"""Bringing the image into a cloud's Glance, and taking it away again."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.cloud_connection import made_once, persistently
from cephfit.cloud.image.guest_image import MIN_RAM_MIB, PROPERTIES, GuestImage
from cephfit.core.errors import ClusterError, InputError

DEFAULT_NAME = "cephfit-guest"
WITH_POSTGRESQL = "cephfit-guest-postgresql"
_DATABASE_RAM_MIB = 512
_PART_OF = "cephfit_image"
"""Property of each of the three: the name of the image that they make together. Others' have it only as copies."""
_SHA256 = "cephfit_sha256"
"""Property: of the file that was sent."""
_SENDING = "cephfit_sending"
"""Property: of the call that sent it, by which that call knows what it made although the answer was lost."""
_FIO_VERSION = "cephfit_fio_version"
_BOOTS_FROM = ("kernel_id", "ramdisk_id")
_GOING = ("deleted", "pending_delete")
_COPIED = ("base_image_ref", "block_device_mapping")
"""Properties that Nova gives to the image of a guest (a snapshot; a shelved one), beside those of the guest's own
image. It says ``image_type`` too, but not where the guest boots from a volume."""
_UNDER_WAY = ("queued", "saving", "uploading", "importing")
_UNDER_WAY_SECONDS = 600.0
"""For which somebody may be sending an image since Glance last heard of it: it does not tell how much has come."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An image in Glance.

    Attributes:
        id: from which servers are made.
        changed: names of what was sent or changed; empty where all was there.
    """

    id: str
    changed: tuple[str, ...]


def upload(
    cloud: Connection, image: GuestImage, *, name: str = "", visibility: str = "private", **tags: str
) -> Uploaded:
    """Have kernel, RAM disk and disk as three images; servers are made from the last.

    What this project has of a former call is used if it is whole and of the same build. What a killed one left is
    replaced. Another build's kernel and RAM disk take the place of the former ones, and the image keeps its id.

    Args:
        cloud: connection.
        image: a built one.
        name: of the last image; empty for ``name_of(image)``.
        visibility: ``public`` needs an administrator. One that is public stays so.
        tags: more properties for each, such as a run's id.

    Raises:
        InputError: an image of this name is there that cephfit did not make, or that is another project's.
        ClusterError: Glance refuses, or somebody is sending the image right now.
    """
    name = name or name_of(image)
    # Whatever somebody else begins to send from here on is not looked at, and so not deleted either.
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
    elif any(_said(whole, key) != str(value) for key, value in wanted.items()):
        # One call: servers are made from the former build or from this one.
        _change(cloud, whole, wanted)
        made = Uploaded(str(whole.id), (name,))
    else:
        made = Uploaded(str(whole.id), ())
    for one in former:
        if one.id not in (made.id, kernel.id, ramdisk.id):
            _delete(cloud, one)
    return Uploaded(made.id, kernel.changed + ramdisk.changed + made.changed)


def remove(cloud: Connection, name: str) -> tuple[str, ...]:
    """Delete an image that `upload` brought, with all its parts; the names of what was deleted.

    Raises:
        ClusterError: Glance refuses; servers may have it.
    """
    # First that from which servers are made: without the others it is of no use.
    parts = sorted(_parts(cloud, name), key=lambda part: bool(part.name != name))
    for part in parts:
        _delete(cloud, part)
    return tuple(str(part.name) for part in parts)


def name_of(image: GuestImage) -> str:
    """What an image is called in Glance unless somebody says otherwise."""
    return WITH_POSTGRESQL if image.postgresql else DEFAULT_NAME


def _properties(image: GuestImage, kernel_id: str, ramdisk_id: str) -> dict[str, Any]:
    """What is said of a build to Glance, and to Nova by it."""
    return {
        "kernel_id": kernel_id,
        "ramdisk_id": ramdisk_id,
        "min_ram": _DATABASE_RAM_MIB if image.postgresql else MIN_RAM_MIB,
        _FIO_VERSION: image.fio_version,
        **({"cephfit_postgresql": image.postgresql} if image.postgresql else {}),
        **PROPERTIES,
    }


def _whole_image(cloud: Connection, name: str, parts: Sequence[Any]) -> Any | None:
    """That of our parts from which servers are made; None if there is none, or half of one.

    Raises:
        InputError: one is there that is not ours: what is started by a name must be the only one that has it.
        ClusterError: it is ours, and an administrator has closed it; or somebody is sending a part of it.
    """
    ours = {part.id for part in parts}
    for one in persistently(lambda: list(cloud.image.images(name=name)), where="images"):
        if one.id not in ours and one.status == "active":
            whose = "of this project" if one.owner == cloud.current_project_id else f"of project {one.owner}"
            raise InputError(
                f"an image {name} {whose} is there already, which `cephfit image upload` did not bring",
                where=f"cloud {cloud.name}",
                remedy=f"use that one (image={one.id} in the target), or name yours otherwise: --name NAME",
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
                f"somebody is sending image {part.name}, or was stopped in it a short while ago",
                where=f"cloud {cloud.name}, status {part.status} since {part.updated_at}",
                remedy=f"wait for it, {_UNDER_WAY_SECONDS / 60:.0f} min at most; if nobody sends it any more: "
                f"openstack image delete {part.id}",
            )
    return next((part for part in parts if part.name == name and part.status == "active"), None)


def _part(cloud: Connection, name: str, file: Path, wanted: Mapping[str, Any], former: Sequence[Any]) -> Uploaded:
    """One of the two that the image boots from: of this very file, there or sent now."""
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    for one in former:
        if one.name == name and one.status == "active" and _said(one, _SHA256) == sha256:
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
        """What an attempt before made, if it came as a whole; half of one is deleted."""
        found = None
        for one in _parts(cloud, str(wanted[_PART_OF])):
            if _said(one, _SENDING) == sending:
                if one.status == "active":
                    found = str(one.id)
                else:
                    _delete(cloud, one)
        return found

    return made_once(make, find, where=f"image {name}")


def _parts(cloud: Connection, name: str) -> list[Any]:
    """What this project's own `upload` made for an image: the only images that are ever changed or deleted.

    An older version marked the image alone, and what that boots from by its id there.
    """
    mine = {"owner": cloud.current_project_id}
    names = (name, f"{name}-kernel", f"{name}-ramdisk")
    candidates = [
        one
        for one in persistently(lambda: list(cloud.image.images(**mine)), where="images")
        if one.name in names and one.status not in _GOING and not _is_copy(one)
    ]
    unmarked = [one for one in candidates if one.name == name and not _said(one, _PART_OF)]
    of_older = [one for one in unmarked if _said(one, _FIO_VERSION)]
    ids = {one.id for one in of_older} | {_said(one, key) for one in of_older for key in _BOOTS_FROM}
    return [one for one in candidates if _said(one, _PART_OF) == name or one.id in ids]


def _is_copy(one: Any) -> bool:
    """Whether it is somebody's guest rather than an image of ours."""
    return _said(one, "image_type") == "snapshot" or any(key in (one.properties or {}) for key in _COPIED)


def _is_under_way(one: Any) -> bool:
    age = datetime.now(UTC) - datetime.fromisoformat(str(one.updated_at))
    return one.status in _UNDER_WAY and age.total_seconds() < _UNDER_WAY_SECONDS


def _said(one: Any, key: str) -> str:
    """What Glance says of an image. The SDK has some properties as attributes; which, depends on its version."""
    value = getattr(one, key, None)
    return str((one.properties or {}).get(key, "") if value is None else value)


def _change(cloud: Connection, one: Any, wanted: Mapping[str, Any]) -> None:
    persistently(lambda: cloud.image.update_image(one.id, **wanted), where=f"image {one.name}")


def _delete(cloud: Connection, one: Any) -> None:
    # The SDK takes one that is gone for deleted.
    persistently(lambda: cloud.image.delete_image(one.id), where=f"image {one.name}")

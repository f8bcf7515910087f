"""Bringing the image into a cloud's Glance, and taking it away again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from cephfit.errors import ClusterError, InputError
from cephfit.sweep.cloud.connection import persistently
from cephfit.sweep.guest.image import MIN_RAM_MIB, PROPERTIES, GuestImage

DEFAULT_NAME = "cephfit-guest"
WITH_POSTGRESQL = "cephfit-guest-postgresql"
_DATABASE_RAM_MIB = 512
_PART_OF = "cephfit_image"
"""Property of each of the three: the name of the image that they make together. Others' have none."""
_SHA256 = "cephfit_sha256"
"""Property: of the file that was sent."""
_FIO_VERSION = "cephfit_fio_version"
_BOOTS_FROM = ("kernel_id", "ramdisk_id")
_GOING = ("deleted", "pending_delete")


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
        ClusterError: Glance refuses.
    """
    name = name or name_of(image)
    whole = _whole_image(cloud, name)
    if whole is not None and visibility != "public":
        visibility = str(whole.visibility)
    common: dict[str, Any] = {"visibility": visibility, _PART_OF: name, **tags}
    kernel = _part(cloud, f"{name}-kernel", image.kernel, {**common, "disk_format": "aki"})
    ramdisk = _part(cloud, f"{name}-ramdisk", image.ramdisk, {**common, "disk_format": "ari"})
    changed = kernel.changed + ramdisk.changed
    properties: dict[str, Any] = {
        "kernel_id": kernel.id,
        "ramdisk_id": ramdisk.id,
        _FIO_VERSION: image.fio_version,
        **({"cephfit_postgresql": image.postgresql} if image.postgresql else {}),
        **PROPERTIES,
    }
    if whole is None:
        wanted = {**common, **properties, "disk_format": "raw"}
        wanted["min_ram"] = _DATABASE_RAM_MIB if image.postgresql else MIN_RAM_MIB
        made = _send(cloud, name, image.disk, wanted)
        return Uploaded(made, (*changed, name))
    now = {**whole.properties, **{key: getattr(whole, key, None) or "" for key in _BOOTS_FROM}}
    is_other = any(now.get(key) != properties[key] for key in (*_BOOTS_FROM, _FIO_VERSION))
    if is_other or whole.visibility != visibility:
        # One call: servers are made from the former build or from this one.
        _change(cloud, whole, {**properties, "visibility": visibility, _PART_OF: name})
        changed = (*changed, name)
    for former in _parts(cloud, name):
        if former.id not in (whole.id, kernel.id, ramdisk.id):
            _delete(cloud, former)
    return Uploaded(str(whole.id), changed)


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


def _whole_image(cloud: Connection, name: str) -> Any | None:
    """The image of this name that this project's own `upload` made; None if there is none, or half of one.

    Raises:
        InputError: one is there that is not ours: what is started by a name must be the only one that has it.
        ClusterError: it is ours, and an administrator has closed it.
    """
    found = None
    for one in persistently(lambda: list(cloud.image.images(name=name)), where="images"):
        properties = one.properties or {}
        is_ours = one.owner == cloud.current_project_id and (
            properties.get(_PART_OF) == name or _FIO_VERSION in properties  # as older versions marked it
        )
        if not is_ours and one.status == "active":
            whose = "of this project" if one.owner == cloud.current_project_id else f"of project {one.owner}"
            raise InputError(
                f"an image {name} {whose} is there already, which `cephfit image upload` did not bring",
                where=f"cloud {cloud.name}",
                remedy=f"use that one (image={one.id} in the target), or name yours otherwise: --name NAME",
            )
        if not is_ours or one.status in _GOING:
            continue
        if one.status == "deactivated":
            raise ClusterError(
                f"image {name} was deactivated",
                where=f"cloud {cloud.name}",
                remedy=f"an administrator can open it again: openstack image set --activate {one.id}",
            )
        if one.status == "active" and found is None:
            found = one
        else:
            _delete(cloud, one)  # a killed call left it
    return found


def _part(cloud: Connection, name: str, file: Path, wanted: Mapping[str, Any]) -> Uploaded:
    """One of the two that the image boots from: of this very file, there or sent now."""
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    for one in _parts(cloud, str(wanted[_PART_OF])):
        if one.name != name:
            continue
        if one.status != "active":
            _delete(cloud, one)  # a killed call left it
        elif one.properties.get(_SHA256) == sha256:
            if wanted["visibility"] != one.visibility:
                _change(cloud, one, {"visibility": wanted["visibility"]})
            return Uploaded(str(one.id), ())
    return Uploaded(_send(cloud, name, file, {**wanted, _SHA256: sha256}), (name,))


def _send(cloud: Connection, name: str, file: Path, wanted: Mapping[str, Any]) -> str:
    more: dict[str, Any] = {**wanted, "use_import": False, "allow_duplicates": True, "wait": True}
    more["container_format"] = "bare" if wanted["disk_format"] == "raw" else wanted["disk_format"]

    def send() -> str:
        for left in _parts(cloud, str(wanted[_PART_OF])):
            if left.name == name and left.status != "active":
                _delete(cloud, left)  # by the attempt before
        return str(cloud.image.create_image(name, filename=str(file), **more).id)

    return persistently(send, where=f"image {name}")


def _parts(cloud: Connection, name: str) -> list[Any]:
    """What this project's own `upload` made for an image."""
    mine = {"owner": cloud.current_project_id}
    found = persistently(lambda: list(cloud.image.images(**mine)), where="images")
    return [one for one in found if (one.properties or {}).get(_PART_OF) == name and one.status not in _GOING]


def _change(cloud: Connection, one: Any, wanted: Mapping[str, Any]) -> None:
    persistently(lambda: cloud.image.update_image(one.id, **wanted), where=f"image {one.name}")


def _delete(cloud: Connection, one: Any) -> None:
    def delete() -> None:
        try:
            cloud.image.delete_image(one.id)
        except NotFoundException:
            return

    persistently(delete, where=f"image {one.name}")

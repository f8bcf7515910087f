"""Bringing the image into a cloud's Glance."""

from typing import Any

from openstack.connection import Connection

from cephfit.sweep.guest.image import MIN_RAM_MIB, PROPERTIES, GuestImage

DEFAULT_NAME = "cephfit-guest"
WITH_POSTGRESQL = "cephfit-guest-postgresql"
_DATABASE_RAM_MIB = 512


def upload(
    cloud: Connection, image: GuestImage, *, name: str = "", visibility: str = "private", **tags: str
) -> str:
    """Create kernel, RAM disk and disk as three images; the id of the last, from which servers are made.

    Images of the same names that are there already are taken as they are.

    Args:
        cloud: connection.
        image: a built one.
        name: of the last image; empty for ``name_of(image)``.
        visibility: ``public`` needs an administrator.
        tags: more properties for each, such as a run's id.
    """
    name = name or name_of(image)
    common: dict[str, Any] = {"visibility": visibility, "use_import": False, "wait": True, **tags}

    def part(suffix: str, file: str, disk_format: str, container_format: str, **properties: Any) -> str:
        made: Any = next(cloud.image.images(name=f"{name}{suffix}"), None) or cloud.create_image(
            f"{name}{suffix}",
            filename=file,
            disk_format=disk_format,
            container_format=container_format,
            **common,
            **properties,
        )
        return str(made.id)

    kernel_id = part("-kernel", str(image.kernel), "aki", "aki")
    ramdisk_id = part("-ramdisk", str(image.ramdisk), "ari", "ari")
    return part(
        "",
        str(image.disk),
        "raw",
        "bare",
        kernel_id=kernel_id,
        ramdisk_id=ramdisk_id,
        min_ram=_DATABASE_RAM_MIB if image.postgresql else MIN_RAM_MIB,
        cephfit_fio_version=image.fio_version,
        **({"cephfit_postgresql": image.postgresql} if image.postgresql else {}),
        **PROPERTIES,
    )


def name_of(image: GuestImage) -> str:
    """What an image is called in Glance unless somebody says otherwise."""
    return WITH_POSTGRESQL if image.postgresql else DEFAULT_NAME

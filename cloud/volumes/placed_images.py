"""Set the volume type of images of a project, as `place` recommends, with a journal and undo.

The type is the image property ``cinder_img_volume_type``. Only images of the project are changed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException, raise_from_response
from platformdirs import user_state_path

from cephfit.cloud.cloud_connection import persistently
from cephfit.cloud.guests.image_upload import property_of
from cephfit.cloud.volumes.cinder_volumes import require_types
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.journal import Journal, TargetLock
from cephfit.core.values.configuration import IMAGE_PROPERTY, ImageChange, ImageRule

_ORIGINAL, _GIVEN = "image", "given type"
"""Kinds of the journal. The place of the second is ``IMAGE_ID=TYPE``, once for each type that was given."""
_JSON_PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}


@dataclass(frozen=True, slots=True)
class ImageStep:
    """An image and its volume type.

    Attributes:
        id: Glance's.
        name: of the image.
        now: present volume type; None without one.
        then: the new one; None to remove the property.
        reason: why it is left as it is; empty if it is not.
    """

    id: str
    name: str
    now: str | None
    then: str | None
    reason: str = ""

    @property
    def is_change(self) -> bool:
        return self.now != self.then and not self.reason

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "changes": self.is_change}


@contextmanager
def open_journal(cloud: Connection, *, for_change: bool) -> Iterator[Journal]:
    """Open the journal of the images of this project; it is locked if it is for a change.

    Raises:
        ClusterError: another process changes them.
        StoreError: the journal is damaged.
    """
    folder = user_state_path("cephfit") / "openstack" / f"images-{cloud.current_project_id}"
    if not for_change:
        yield Journal(folder / "journal.jsonl", read_only=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = TargetLock(folder / "lock", f"images of cloud {cloud.name}")
    try:
        yield Journal(folder / "journal.jsonl")
    finally:
        lock.release()


def plan(cloud: Connection, changes: Sequence[ImageChange]) -> tuple[ImageStep, ...]:
    """Return the images that the rules select, sorted by name, with their present and new volume types.

    Images of other projects are left.

    Raises:
        InputError: a volume type does not exist, or two rules give an image different types.
        ClusterError: a service refuses or does not answer.
    """
    require_types(cloud, sorted({change.volume_type for change in changes}))
    steps = []
    for image in persistently(lambda: list(cloud.image.images()), where="images"):
        types = {c.volume_type: str(c.rule.workload) for c in changes if _selects(c.rule, image)}
        if len(types) > 1:
            both = " and ".join(f"{name} for {workload}" for name, workload in types.items())
            raise InputError(
                f"image {image.name} ({image.id}) gets two volume types: {both}",
                where=f"cloud {cloud.name}",
                remedy="remove one of its tags or properties, or change the rules of `place --properties`",
            )
        for name in types:
            is_ours = image.owner == cloud.current_project_id
            reason = "" if is_ours else f"it belongs to project {image.owner}"
            steps.append(ImageStep(str(image.id), str(image.name), _type_of(image), name, reason))
    return tuple(sorted(steps, key=lambda step: (step.name, step.id)))


def apply(cloud: Connection, steps: Sequence[ImageStep], journal: Journal) -> None:
    """Set the volume types of a plan; each original value is in the journal first, and each new one is read back.

    Raises:
        ClusterError: Glance refuses or has another value afterwards. The images before keep their new types.
        StoreError: the journal cannot be written; the image is not changed.
    """
    for step in steps:
        if step.is_change:
            journal.note(_ORIGINAL, step.id, {"name": step.name, "type": step.now})
            journal.note(_GIVEN, f"{step.id}={step.then}", None)
            _set(cloud, step)


def undo_plan(cloud: Connection, journal: Journal) -> tuple[ImageStep, ...]:
    """Return the images of the journal with their present and original types, in the order of their changes.

    Images with a type that `apply` did not give are left, and so are deleted ones.
    """
    steps = []
    for entry in journal.entries(_ORIGINAL):
        name, original = entry.was["name"], entry.was["type"]
        image = persistently(_image, cloud, entry.place, where=f"image {name}")
        if image is None:
            steps.append(ImageStep(entry.place, name, None, original, "it was deleted"))
            continue
        now = _type_of(image)
        is_given = now == original or journal.get(_GIVEN, f"{entry.place}={now}") is not None
        reason = "" if is_given else "its volume type was changed since"
        steps.append(ImageStep(entry.place, str(image.name), now, original, reason))
    return tuple(steps)


def undo(cloud: Connection, steps: Sequence[ImageStep], journal: Journal) -> None:
    """Restore the volume types of a plan of `undo_plan`, and remove all its images from the journal.

    Raises:
        ClusterError: Glance refuses or has another value afterwards. The image stays in the journal.
    """
    for step in steps:
        if step.is_change:
            _set(cloud, step)
        for entry in journal.entries(_GIVEN):
            if entry.place.startswith(f"{step.id}="):
                journal.forget(_GIVEN, entry.place)
        journal.forget(_ORIGINAL, step.id)
    journal.finish()


def _selects(rule: ImageRule, image: Any) -> bool:
    option, text = rule.selection
    if option == "--tag":
        return text in (image.tags or ())
    key, _, value = text.partition("=")
    return property_of(image, key) == value


def _type_of(image: Any) -> str | None:
    return property_of(image, IMAGE_PROPERTY) or None


def _image(cloud: Connection, image_id: str) -> Any | None:
    try:
        return cloud.image.get_image(image_id)
    except NotFoundException:
        return None


def _set(cloud: Connection, step: ImageStep) -> None:
    where = f"image {step.name} ({step.id})"
    found = persistently(_patch, cloud, step, where=where)
    if found != step.then:
        raise ClusterError(
            f"its volume type is {found or 'not set'} after it was set to {step.then or 'none'}",
            where=where,
            remedy="does something else change it? `cephfit cloud unplace` shows what can be undone",
        )


def _patch(cloud: Connection, step: ImageStep) -> str | None:
    """Set or remove the property, unless an earlier attempt did; return the type read back.

    The SDK cannot remove a property.
    """
    path = f"/{IMAGE_PROPERTY}"
    now = _type_of(cloud.image.get_image(step.id))
    if now != step.then:
        change = {"op": "remove", "path": path}
        if step.then is not None:
            change = {"op": "add", "path": path, "value": step.then}
        raise_from_response(cloud.image.patch(f"/images/{step.id}", json=[change], headers=_JSON_PATCH))
        now = _type_of(cloud.image.get_image(step.id))
    return now

"""The guests' image in a cloud's Glance: whose images are touched, and what is there after a call that failed."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

import openstack
from openstack.connection import Connection
from scripted_services import Answer, JsonServer, serving

from cephfit.cloud.guests.guest_image import PROPERTIES, GuestImage
from cephfit.cloud.guests.image_upload import Uploaded, remove, upload
from cephfit.core.errors import ClusterError, InputError

NAME, KERNEL, RAMDISK = "guest", "guest-kernel", "guest-ramdisk"
PROJECT = "ours"


class Glance(JsonServer):
    """As much of one as images of a project need.

    Attributes:
        images: by id, as it reports them.
        lost: for a question such as ``PUT file``, whether the next ones fail after they were obeyed or before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.images: dict[str, dict[str, Any]] = {}
        self.lost: dict[str, list[bool]] = {}

    def has(self, name: str, *, minutes_old: float = 60, **more: Any) -> str:
        """Have an image; its id."""
        made = str(len(self.images) + 1)
        since = (datetime.now(UTC) - timedelta(minutes=minutes_old)).strftime("%Y-%m-%dT%H:%M:%SZ")
        reported = {"id": made, "name": name, "owner": PROJECT, "status": "queued", "visibility": "private"}
        self.images[made] = {**reported, "updated_at": since, **more}
        return made

    def gone(self) -> set[str]:
        return {one for one, reported in self.images.items() if reported["status"] == "deleted"}

    def there(self) -> list[tuple[str, str]]:
        """Name and status of each image that is not deleted."""
        reported = [(one["name"], one["status"]) for one in self.images.values()]
        return sorted(one for one in reported if one[1] != "deleted")

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """See JsonServer."""
        found = re.fullmatch(r"/v2/images(?:/(\w+))?(/file)?", path.partition("?")[0])
        if found is None:
            links = [{"rel": "self", "href": f"{self.url}/v2/"}]
            return 200, {"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}
        question = f"{method} file" if found[2] else method
        self.asked.append(question)
        is_lost = self.lost.get(question, [])
        if is_lost and not is_lost[0]:
            is_lost.pop(0)
            return 502, {}
        reported = self._done(question, found[1], path, body)
        return (502, {}) if is_lost and is_lost.pop(0) else reported

    def _done(self, question: str, image: str | None, path: str, body: bytes) -> Answer:
        if question == "POST":
            return 201, self.images[self.has(minutes_old=0, **json.loads(body))]
        if image is None:
            asked = dict(parse_qsl(urlsplit(path).query))
            found = (one for one in self.images.values() if one["status"] != "deleted")
            return 200, {"images": [one for one in found if asked.items() <= one.items()]}
        if image not in self.images or self.images[image]["status"] == "deleted":
            return 404, {}
        if question == "PUT file":
            self.images[image]["status"] = "active"
        elif question == "PATCH":
            self.images[image].update({change["path"][1:]: change["value"] for change in json.loads(body)})
        elif question == "DELETE":
            self.images[image]["status"] = "deleted"
        return 200, self.images[image]


@pytest.fixture
def glance() -> Iterator[Glance]:
    with serving(Glance()) as server:
        yield server


@pytest.fixture
def cloud(glance: Glance, no_waiting: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(Connection, "current_project_id", PROJECT)
    connection = openstack.connect(
        auth_type="none",
        auth={"endpoint": glance.url},
        image_endpoint_override=f"{glance.url}/v2",
        image_api_version="2",
    )
    yield connection
    connection.close()


def build(folder: Path, content: str = "one") -> GuestImage:
    """Files of an image that is never booted."""
    image = GuestImage(folder, "6.1.0-1", "fio-3.33")
    for file in (image.kernel, image.ramdisk, image.disk):
        file.write_text(f"{file.name} {content}")
    return image


def put(cloud: Connection, folder: Path, content: str = "one") -> Uploaded:
    return upload(cloud, build(folder, content), name=NAME)


WHOLE = [(NAME, "active"), (KERNEL, "active"), (RAMDISK, "active")]


def test_an_image_is_sent_once_and_another_build_takes_its_place(
    glance: Glance, cloud: Connection, tmp_path: Path
) -> None:
    first = put(cloud, tmp_path)
    assert set(first.changed) == {NAME, KERNEL, RAMDISK}
    assert put(cloud, tmp_path) == Uploaded(first.id, ())
    assert put(cloud, tmp_path, "another").id == first.id
    assert glance.there() == WHOLE
    assert len(glance.gone()) == 2, "the former kernel and RAM disk"
    assert set(remove(cloud, NAME)) == {NAME, KERNEL, RAMDISK}
    assert glance.there() == []


@pytest.mark.parametrize(
    "by_nova", [{"image_type": "snapshot"}, {"base_image_ref": ""}, {"block_device_mapping": "[]"}]
)
def test_a_snapshot_of_a_guest_is_its_users_own(
    glance: Glance, cloud: Connection, tmp_path: Path, by_nova: dict[str, str]
) -> None:
    """Nova gives it the properties of the image from which the guest was made."""
    first = put(cloud, tmp_path)
    copied = {key: value for key, value in glance.images[first.id].items() if key not in ("id", "name")}
    snapshots = {glance.has(name, **{**copied, **by_nova}) for name in ("before the upgrade", KERNEL)}
    put(cloud, tmp_path, "another")
    assert not snapshots & glance.gone()
    remove(cloud, NAME)
    assert {glance.images[one]["status"] for one in snapshots} == {"active"}
    assert len(glance.there()) == len(snapshots)


def test_a_snapshot_of_the_images_own_name_is_not_taken_for_the_image(
    glance: Glance, cloud: Connection, tmp_path: Path
) -> None:
    first = put(cloud, tmp_path)
    copied = {key: value for key, value in glance.images[first.id].items() if key != "id"}
    snapshot = glance.has(**{**copied, "image_type": "snapshot"})
    remove(cloud, NAME)
    with pytest.raises(InputError, match="an image guest of this project already exists") as error:
        put(cloud, tmp_path)
    assert f"image={snapshot}" in str(error.value.remedy)
    assert glance.images[snapshot]["status"] == "active"


def test_a_renamed_image_is_its_users_own(glance: Glance, cloud: Connection, tmp_path: Path) -> None:
    first = put(cloud, tmp_path)
    glance.images[first.id]["name"] = "kept"
    assert put(cloud, tmp_path).id != first.id
    assert first.id not in glance.gone()


def test_of_a_call_that_was_killed_before_the_image_nothing_stays(
    glance: Glance, cloud: Connection, tmp_path: Path
) -> None:
    """Its kernel had come as a whole; then another build is uploaded."""
    former = glance.has(KERNEL, status="active", cephfit_image=NAME, cephfit_sha256="of the former build")
    half = glance.has(RAMDISK, status="saving", cephfit_image=NAME)
    put(cloud, tmp_path)
    assert glance.there() == WHOLE
    assert glance.gone() == {former, half}


@pytest.mark.parametrize("is_cleaned_up", [True, False])
@pytest.mark.parametrize("is_obeyed", [True, False])
def test_what_was_sent_although_the_answer_was_lost_is_there_once(
    glance: Glance, cloud: Connection, tmp_path: Path, is_obeyed: bool, is_cleaned_up: bool
) -> None:
    """The SDK deletes what it could not send; that may fail too."""
    glance.lost = {"PUT file": [is_obeyed] * 2, "DELETE": [] if is_cleaned_up else [False] * 2}
    put(cloud, tmp_path)
    assert glance.there() == WHOLE
    assert glance.asked.count("PUT file") == (3 if is_obeyed and not is_cleaned_up else 5)


def test_an_image_that_was_made_although_the_answer_was_lost_is_not_left_empty(
    glance: Glance, cloud: Connection, tmp_path: Path
) -> None:
    glance.lost = {"POST": [True, False, True]}
    put(cloud, tmp_path)
    assert glance.there() == WHOLE


def of_an_older_version(glance: Glance) -> set[str]:
    """Kernel and RAM disk have no mark, and the image has that of fio alone."""
    kernel, ramdisk = (glance.has(name, status="active") for name in (KERNEL, RAMDISK))
    boots = {"kernel_id": kernel, "ramdisk_id": ramdisk}
    return {kernel, ramdisk, glance.has(NAME, status="active", cephfit_fio_version="fio-3.28", **boots)}


def test_an_image_of_an_older_version_is_taken_over_with_its_parts(
    glance: Glance, cloud: Connection, tmp_path: Path
) -> None:
    older = of_an_older_version(glance)
    taken = put(cloud, tmp_path)
    assert taken.id in older
    assert glance.there() == WHOLE
    assert glance.gone() == older - {taken.id}
    assert set(remove(cloud, NAME)) == {NAME, KERNEL, RAMDISK}


def test_an_image_of_an_older_version_is_removed_with_its_parts(glance: Glance, cloud: Connection) -> None:
    older = of_an_older_version(glance)
    theirs = glance.has(KERNEL, status="active"), glance.has("other", status="active", kernel_id="1")
    assert remove(cloud, NAME)[0] == NAME
    assert glance.gone() == older
    assert {glance.images[one]["status"] for one in theirs} == {"active"}


def test_what_a_newer_version_says_of_the_same_build_is_said_to_glance(
    glance: Glance, cloud: Connection, tmp_path: Path
) -> None:
    first = put(cloud, tmp_path)
    del glance.images[first.id]["hw_rng_model"]
    glance.images[first.id].update(os_shutdown_timeout="60", min_ram=64)
    assert put(cloud, tmp_path) == Uploaded(first.id, (NAME,))
    reported = glance.images[first.id]
    assert {key: reported[key] for key in PROPERTIES} == PROPERTIES
    assert reported["min_ram"] == 256
    assert put(cloud, tmp_path).changed == ()


@pytest.mark.parametrize("name", [NAME, KERNEL, RAMDISK])
def test_what_somebody_is_sending_right_now_is_left_to_them(
    glance: Glance, cloud: Connection, tmp_path: Path, name: str
) -> None:
    theirs = glance.has(name, minutes_old=5, status="saving", cephfit_image=NAME)
    with pytest.raises(ClusterError, match=f"image {name} is being uploaded") as error:
        put(cloud, tmp_path)
    assert f"openstack image delete {theirs}" in str(error.value.remedy)
    assert glance.there() == [(name, "saving")]
    assert "POST" not in glance.asked
    glance.images[theirs]["updated_at"] = (datetime.now(UTC) - timedelta(minutes=11)).isoformat()
    put(cloud, tmp_path)
    assert glance.there() == WHOLE


def test_what_somebody_begins_to_send_meanwhile_is_left_to_them(
    glance: Glance, cloud: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cloud, tmp_path)
    change = cloud.image.update_image
    theirs = []

    def update(*arguments: Any, **wanted: Any) -> Any:
        theirs.append(
            glance.has(KERNEL, minutes_old=0, status="active", cephfit_image=NAME, cephfit_sha256="theirs")
        )
        return change(*arguments, **wanted)

    monkeypatch.setattr(cloud.image, "update_image", update)
    put(cloud, tmp_path, "another")
    assert [glance.images[one]["status"] for one in theirs] == ["active"]


def test_what_is_gone_already_counts_as_deleted(glance: Glance, cloud: Connection, tmp_path: Path) -> None:
    put(cloud, tmp_path)
    glance.lost = {"DELETE": [True]}
    assert len(remove(cloud, NAME)) == 3
    assert glance.there() == []
    assert glance.asked.count("DELETE") == 4

"""Volume types of images: plan, apply, undo. test_..._of_a_real_cloud plays what Glance and Cinder (Zed) said."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("vcr", reason="needs vcrpy")

from click.testing import CliRunner, Result
from openstack.connection import Connection
from openstack.exceptions import raise_from_response
from recorded_cloud import played, player
from scripted_services import Services
from test_image_upload import PROJECT, Glance, cloud, glance

from cephfit.cli.cluster import cloud_place
from cephfit.cli.cluster.cloud_command import command
from cephfit.cloud.image import placed_images
from cephfit.core.errors import CephfitError, ClusterError, InputError
from cephfit.core.journal import Journal
from cephfit.core.values.image_types import IMAGE_PROPERTY, ImageChange, ImageRule

__all__ = ["cloud", "glance"]
DATABASE = ImageChange(ImageRule(("--property", "workload=database"), "pgbench"), "ssd")
MAIL = ImageChange(ImageRule(("--tag", "mail"), "postmark"), "hdd")
CHANGES = (DATABASE, MAIL)


def image_of(cloud: Connection, name: str, **more: Any) -> str:
    """Create an image without data."""
    answer = cloud.image.post("/images", json={"name": name, **more})
    raise_from_response(answer)
    return str(answer.json()["id"])


def placed_and_undone(cloud: Connection, journal: Journal) -> dict[str, Any]:
    """Two images to change, of which one had a type; one that fits already; one that no rule selects."""
    ids = [
        image_of(cloud, "database", workload="database"),
        image_of(cloud, "mail", tags=["mail", "old"], **{IMAGE_PROPERTY: "ssd"}),
        image_of(cloud, "mail-again", tags=["mail"], **{IMAGE_PROPERTY: "hdd"}),
        image_of(cloud, "other", workload="web"),
    ]

    def types() -> list[str | None]:
        return [(cloud.image.get_image(one).properties or {}).get(IMAGE_PROPERTY) for one in ids]

    first = placed_images.plan(cloud, CHANGES)
    before = types()
    placed_images.apply(cloud, first, journal)
    after = types()
    again = placed_images.plan(cloud, CHANGES)
    placed_images.undo(cloud, placed_images.undo_plan(cloud, journal), journal)
    undone = types()
    for one in ids:
        cloud.image.delete_image(one)
    try:
        placed_images.plan(cloud, [ImageChange(DATABASE.rule, "nvme")])
    except InputError as error:
        refused = str(error)
    return {"first": first, "again": again, "types": [before, after, undone], "refused": refused}


def test_types_are_set_read_back_and_undone_as_of_a_real_cloud(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    with played("placed_images"):
        found = placed_and_undone(player(), journal)
    assert [(s.name, s.now, s.then, s.is_change) for s in found["first"]] == [
        ("database", None, "ssd", True),
        ("mail", "ssd", "hdd", True),
        ("mail-again", "hdd", "hdd", False),
    ]
    before, after, undone = found["types"]
    assert before == [None, "ssd", "hdd", None] == undone
    assert after == ["ssd", "hdd", "hdd", None]
    assert not any(step.is_change for step in found["again"])
    assert "no volume type nvme" in found["refused"]
    assert not journal.path.exists()


class Cloud(Glance):
    """Glance that can also remove properties, and Cinder's volume types at the same address."""

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """See JsonServer."""
        if path.partition("?")[0].endswith("/types"):
            return 200, {"volume_types": [{"id": name, "name": name} for name in ("hdd", "ssd")]}
        if method == "PATCH":
            (change,) = json.loads(body)
            if change["op"] == "remove":
                self.asked.append("PATCH")
                image = self.images[path.rpartition("/")[2]]
                if self.lost.get("PATCH") and not self.lost["PATCH"].pop(0):
                    return 502, {}
                del image[change["path"][1:]]
                return 200, image
        return super().answer(method, path, body)


@pytest.fixture
def glance_class() -> type[Glance]:
    return Cloud

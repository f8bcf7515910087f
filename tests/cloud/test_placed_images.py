"""Volume types of images: plan, apply, undo. The recording is of Glance and Cinder (Zed), see record_cloud.py."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("vcr", reason="needs vcrpy")

import openstack
from click.testing import CliRunner, Result
from openstack.connection import Connection
from openstack.exceptions import raise_from_response
from recorded_cloud import played, player
from scripted_services import serving
from test_image_upload import PROJECT, Glance

from cephfit.cli.cluster import cloud_command
from cephfit.cli.cluster.cloud_command import command
from cephfit.cloud.volumes import placed_images
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.journal import Journal
from cephfit.core.values.configuration import IMAGE_PROPERTY, ImageChange, ImageRule

pytestmark = pytest.mark.usefixtures("recorded_release")

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
def services() -> Iterator[Cloud]:
    with serving(Cloud()) as server:
        yield server


@pytest.fixture
def connection(services: Cloud, no_waiting: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(Connection, "current_project_id", PROJECT)
    found = openstack.connect(
        auth_type="none",
        auth={"endpoint": services.url},
        image_endpoint_override=f"{services.url}/v2",
        image_api_version="2",
        block_storage_endpoint_override=f"{services.url}/v3",
    )
    yield found
    found.close()


@pytest.fixture
def call(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Result, dict[str, Any]]]:
    """Call `cephfit cloud ... --json` for a layout that selects databases."""
    monkeypatch.setattr(cloud_command, "connected", lambda _: connection)
    monkeypatch.setattr(placed_images, "user_state_path", lambda _: tmp_path)
    layout = tmp_path / "layout.json"
    layout.write_text(json.dumps({"images": [change.to_json() for change in CHANGES]}))

    def run(*words: str) -> tuple[Result, dict[str, Any]]:
        argv = [words[0], *([str(layout)] if words[0] == "place" else []), *words[1:], "--json"]
        done = CliRunner().invoke(command, argv)
        return done, json.loads(done.stdout) if done.stdout else {}

    return run


def test_nothing_changes_without_apply_and_other_projects_images_never_do(
    services: Cloud, call: Callable[..., tuple[Result, dict[str, Any]]], tmp_path: Path
) -> None:
    ours = services.has("db", status="active", workload="database")
    services.has("public-db", status="active", workload="database", owner="theirs", visibility="public")
    for words in (("place",), ("unplace",), ("unplace", "--apply")):
        assert call(*words)[0].exit_code == 0
    assert "PATCH" not in services.asked
    done, found = call("place", "--apply")
    assert done.exit_code == 0
    assert {i["name"]: (i["changes"], i["reason"]) for i in found["images"]} == {
        "db": (True, ""),
        "public-db": (False, "it belongs to project theirs"),
    }
    assert services.asked.count("PATCH") == 1
    assert services.images[ours][IMAGE_PROPERTY] == "ssd"
    assert call("unplace", "--apply")[0].exit_code == 0
    assert IMAGE_PROPERTY not in services.images[ours]


def test_what_was_changed_since_is_left_and_reported(
    services: Cloud, call: Callable[..., tuple[Result, dict[str, Any]]]
) -> None:
    changed, gone, kept = (services.has(n, status="active", workload="database") for n in ("a", "b", "c"))
    call("place", "--apply")
    services.images[changed][IMAGE_PROPERTY] = "hdd"
    services.images[gone]["status"] = "deleted"
    done, found = call("unplace", "--apply")
    assert [i["reason"] for i in found["images"]] == ["its volume type was changed since", "it was deleted", ""]
    assert isinstance(done.exception, ClusterError) and f"a ({changed})" in str(done.exception)
    assert services.images[changed][IMAGE_PROPERTY] == "hdd"
    assert IMAGE_PROPERTY not in services.images[kept]
    assert call("unplace")[1]["images"] == []


@pytest.mark.parametrize("is_obeyed", [True, False])
def test_a_lost_answer_changes_nothing_twice(
    services: Cloud, call: Callable[..., tuple[Result, dict[str, Any]]], is_obeyed: bool
) -> None:
    image = services.has("db", status="active", workload="database", **{IMAGE_PROPERTY: "hdd"})
    services.lost = {"PATCH": [is_obeyed]}
    assert call("place", "--apply")[0].exit_code == 0
    assert services.images[image][IMAGE_PROPERTY] == "ssd"
    assert services.asked.count("PATCH") == (1 if is_obeyed else 2)


def test_after_a_failure_in_the_middle_everything_can_be_undone(
    services: Cloud, call: Callable[..., tuple[Result, dict[str, Any]]]
) -> None:
    first, second = (services.has(n, status="active", workload="database") for n in ("a", "b"))
    services.lost = {"PATCH": [True] + [False] * 50}
    services.images[first][IMAGE_PROPERTY] = "hdd"
    done, _ = call("place", "--apply")
    assert isinstance(done.exception, ClusterError)
    services.lost = {}
    assert call("unplace", "--apply")[0].exit_code == 0
    assert services.images[first][IMAGE_PROPERTY] == "hdd"
    assert IMAGE_PROPERTY not in services.images[second]


def test_an_image_of_two_workloads_with_different_types_is_refused(
    services: Cloud, call: Callable[..., tuple[Result, dict[str, Any]]]
) -> None:
    services.has("both", status="active", workload="database", tags=["mail"])
    done, _ = call("place", "--apply")
    assert isinstance(done.exception, InputError)
    assert "two volume types: ssd for pgbench and hdd for postmark" in str(done.exception)
    assert "PATCH" not in services.asked


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"images": [{}]}', '{"images": [{"images": {"--name": "x"}, "workload": "w"}]}']
)
def test_a_wrong_layout_is_refused_before_a_connection(text: str, tmp_path: Path) -> None:
    (tmp_path / "layout.json").write_text(text)
    done = CliRunner().invoke(command, ["place", str(tmp_path / "layout.json")])
    assert isinstance(done.exception, InputError)
    assert "place ... --properties FILE --json" in str(done.exception.remedy)

"""Stacks as Heat (release Zed) makes and deletes them when answers get lost, and others' stacks of the same name.

tests/cloud/record_cloud.py records it.
"""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("vcr", reason="needs vcrpy")

import yaml
from live_cloud import make_stack
from openstack.connection import Connection
from openstack.exceptions import HttpException
from recorded_cloud import FOLDER
from test_cloud_recorded import RUN, SCRIPT, error_of

from cephfit.cloud.ownership import stack_name
from cephfit.cloud.stacks import LARGEST_STACK, Node, Stacks, template_path
from cephfit.core.protocols import NullProgress

pytestmark = pytest.mark.usefixtures("no_waiting", "recorded_release")

NAME = stack_name(RUN, "hdd-1")
EMPTY = {"heat_template_version": "2017-09-01", "resources": {"nothing": {"type": "OS::Heat::None"}}}


def losing_first_answers(cloud: Connection) -> list[str]:
    """Heat gets each of these calls, and the first answer of each is lost on the way back, as by a gateway."""
    heat: Any = cloud.orchestration
    lost: list[str] = []

    def losing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **more: Any) -> Any:
            answer = call(*arguments, **more)
            if name in lost:
                return answer
            lost.append(name)
            raise HttpException(message="Bad Gateway", http_status=502)

        return made

    for name in ("create_stack", "update_stack", "delete_stack"):
        setattr(heat, name, losing(name, getattr(heat, name)))
    return lost


# Each scenario is what was done when it was recorded, and what is done again when it is played.


def lost_answers(cloud: Connection) -> tuple[list[str], tuple[Node, ...], tuple[Node, ...], int]:
    lost = losing_first_answers(cloud)
    one = make_stack(cloud, RUN, count=1, user_data=SCRIPT)
    two = make_stack(cloud, RUN, count=2, user_data=SCRIPT)
    stacks = Stacks(cloud, RUN, NullProgress())
    stacks.delete(NAME)
    return lost, one, two, stacks.count(NAME)


def deleted_while_it_is_made(cloud: Connection) -> int:
    """As by `restore` after a kill while Heat was making guests."""
    heat = cloud.orchestration
    files = heat.read_env_and_templates(template_file=str(template_path("benchmark")))
    parameters = {
        "run_id": RUN,
        "image": "cephfit-guest",
        "flavor": "cephfit.tiny",
        "volume_type": "hdd",
        "count": 2,
    }
    heat.create_stack(name=NAME, parameters=parameters, tags=f"cephfit-run={RUN}", **files)
    stacks = Stacks(cloud, RUN, NullProgress())
    stacks.ask_deletion(NAME)
    stacks.delete(NAME)
    return stacks.count(NAME)


def stack_of_others(cloud: Connection) -> tuple[list[str], str]:
    heat = cloud.orchestration
    heat.create_stack(name=NAME, template=EMPTY, tags="mine")
    stacks = Stacks(cloud, RUN, NullProgress())
    said = [
        error_of(lambda: stacks.ensure(NAME, "benchmark", {"count": 1})),
        error_of(lambda: stacks.ask_deletion(NAME)),
        error_of(lambda: stacks.delete(NAME)),
        error_of(lambda: stacks.count(NAME)),
    ]
    return said, str(heat.get_stack(NAME, resolve_outputs=False).status)


def test_lost_answers(played_cloud: Connection) -> None:
    """Whatever was lost is asked for again, and what it had made is taken; nothing is made twice."""
    lost, one, two, n_left = lost_answers(played_cloud)
    assert lost == ["create_stack", "update_stack", "delete_stack"]
    assert len(one) == 1
    assert two[:1] == one
    assert len(two) == 2
    assert n_left == 0


def test_deleted_while_it_is_made(played_cloud: Connection, recorded_release: str) -> None:
    """Creation is not waited for before a deletion."""
    assert deleted_while_it_is_made(played_cloud) == 0
    asked = yaml.safe_load((FOLDER / recorded_release / "deleted_while_it_is_made.yaml").read_text())[
        "interactions"
    ]
    methods = [one["request"]["method"] for one in asked]
    answers = [one["response"]["body"]["string"] for one in asked[: methods.index("DELETE")]]
    assert any('"stack_status": "CREATE_IN_PROGRESS"' in answer for answer in answers)
    assert not any('"stack_status": "CREATE_COMPLETE"' in answer for answer in answers)


def test_stack_of_others(played_cloud: Connection) -> None:
    """A stack of this name that is not the run's is neither changed nor deleted."""
    said, status = stack_of_others(played_cloud)
    assert len(said) == 4
    for sentence in said:
        assert "another stack has this name: it has no tag cephfit-run=recorded" in sentence
    assert status == "CREATE_COMPLETE"


@pytest.mark.parametrize("name", ["benchmark", "client", "verification"])
def test_every_parameter_of_the_templates_says_what_it_is_for(name: str) -> None:
    document = yaml.safe_load(template_path(name).read_text())
    assert str(document["heat_template_version"]) == "2017-09-01", "Pike, the first with allocate_network"
    for parameter, said in document["parameters"].items():
        assert said.get("description", "").strip(), f"{name}.yaml does not say what {parameter} is for"


@pytest.mark.parametrize("name", ["benchmark", "verification"])
def test_a_stack_has_no_more_guests_than_heat_has_resources_for(name: str) -> None:
    """1000 by default (Heat's max_resources_per_stack): the stack, four of its own, and so many clients."""
    (limit,) = yaml.safe_load(template_path(name).read_text())["parameters"]["count"]["constraints"]
    assert limit["range"]["max"] == LARGEST_STACK
    per_client = 1 + len(yaml.safe_load(template_path("client").read_text())["resources"])
    assert 10 + LARGEST_STACK * per_client <= 1000

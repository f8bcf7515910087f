"""Which cloud is meant, and what happens when it does not answer."""

import socket
from pathlib import Path

import pytest
import yaml

from cephfit.cloud import cloud_connection
from cephfit.core.errors import ClusterError, InputError


@pytest.fixture
def one_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """A clouds.yaml with one cloud, whose Keystone takes connections and never answers."""
    for name in ("OS_CLOUD", "OS_AUTH_URL"):
        monkeypatch.delenv(name, raising=False)
    listening = socket.create_server(("127.0.0.1", 0))
    auth = {"auth_url": f"http://127.0.0.1:{listening.getsockname()[1]}/v3", "username": "me", "password": "x"}
    cloud = {"auth": {**auth, "project_name": "p", "user_domain_name": "d", "project_domain_name": "d"}}
    file = tmp_path / "clouds.yaml"
    file.write_text(yaml.safe_dump({"clouds": {"silent": cloud}}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    return listening


def test_a_service_that_takes_a_request_and_never_answers_is_not_waited_for_for_ever(
    one_cloud: socket.socket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cloud_connection, "_ANSWER_SECONDS", 0.2)
    with pytest.raises(ClusterError, match=r"does not answer|timed out"):
        cloud_connection.connect("silent")
    assert capfd.readouterr().err == "", "one sentence, and it is the error's"
    one_cloud.close()


def test_a_cloud_that_nobody_named_is_not_taken_although_it_is_the_only_one(one_cloud: socket.socket) -> None:
    with pytest.raises(InputError, match="no cloud is named") as caught:
        cloud_connection.connect("")
    assert "silent" in caught.value.remedy
    one_cloud.close()

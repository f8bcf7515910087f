"""Counting the servers of a cloud by class, against services that answer like Nova and Cinder."""

import json
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from click.testing import CliRunner
from queue_samples import queue_samples
from scripted_services import Services, connection_to, serving

from cephfit.cli.main import cephfit
from cephfit.cli.options import common_options
from cephfit.cloud.cloud_facts import count_servers
from cephfit.core.errors import ClusterError
from cephfit.core.values.sample import Run
from cephfit.results.store.sample_store import Store


def say_servers(services: Services, servers: dict[str, str]) -> None:
    """Servers by name, with the volume type of their one volume; empty: they have none."""
    listed = [{"id": f"id-{name}", "name": name} for name in servers]
    services.say("GET /compute/v2.1/servers/detail", (200, {"servers": listed}))
    volumes = [
        {"id": f"v-{name}", "volume_type": kind, "attachments": [{"server_id": f"id-{name}"}]}
        for name, kind in servers.items()
        if kind
    ]
    volumes.append({"id": "spare", "volume_type": "hdd", "attachments": []})
    services.say("GET /block_storage/v3/volumes/detail", (200, {"volumes": volumes}))


def test_a_server_counts_by_its_name_else_by_the_type_of_its_volume() -> None:
    with serving(Services()) as services:
        cloud = connection_to(services)
        say_servers(
            services,
            {
                "db-1": "hdd",
                "DB-2": "",
                "web-db-3": "",
                "old-db-replica-4": "",
                "dbase-5": "",
                "x-6": "hdd",
                "y-7": "",
            },
        )
        found = count_servers(cloud, ["db", "web", "db-replica", "hdd"])
    assert found.by_class == {"db": 2, "web": 1, "db-replica": 1, "hdd": 1}
    assert found.unmatched == 2, "dbase-5 is another word, and y-7 has no volume"
    assert "2 db, 1 web, 1 db-replica, 1 hdd; 2 more servers are in no class" in found.sentence


def test_a_refusal_is_one_sentence() -> None:
    with serving(Services()) as services:
        cloud = connection_to(services)
        services.say(
            "GET /compute/v2.1/servers/detail", (403, {"forbidden": {"message": "not yours", "code": 403}})
        )
        with pytest.raises(ClusterError, match="not yours"):
            count_servers(cloud, ["db"])


def test_the_command_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, profile = tmp_path / "s.sqlite", tmp_path / "db.json"
    accesses = {"read": {"4K": 600}, "write": {}}
    document = {"schema_version": 1, "name": "db", "accesses": accesses, "random": {"read": 1, "write": 0}}
    profile.write_text(json.dumps({**document, "description": {"duration_seconds": 60}}))
    with Store.open(str(store), create=True) as opened:
        opened.add_run(Run("r1", "capacity", "", "digest", "queue", 1, 0))
        opened.add_samples("r1", list(queue_samples({"A": {"4K-randread": 1000.0}})), fio_json=None)
    with serving(Services()) as services:
        cloud = connection_to(services)
        say_servers(services, {"db-1": "", "db-2": "", "other": ""})
        asked: list[str] = []
        monkeypatch.setattr(common_options, "connected", lambda name: asked.append(name) or cloud)
        words = ["capacity", str(profile), "--baselines", str(store), "--clients-from", "openstack:prod", "--json"]
        done = CliRunner().invoke(cephfit, words, catch_exceptions=False)
    found = json.loads(done.stdout)
    assert asked == ["prod"]
    assert found["pools"][0]["classes"][0]["vms"] == 2
    assert any("1 more servers are in no class" in note for note in found["notes"])

"""The API answers whatever its schema allows, and what it does not, without a fault of the server."""

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from running_server import application, settled
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from starlette.testclient import TestClient

PGBENCH = Path(__file__).resolve().parents[2] / "docs" / "examples" / "profiles" / "pgbench.json"


@pytest.fixture
def api_schema(simulated_store: Path, tmp_path_factory: pytest.TempPathFactory) -> object:
    app = application(simulated_store, tmp_path_factory.mktemp("server"))
    client = TestClient(app, base_url="http://127.0.0.1")
    found = settled(client, client.post("/api/workloads", files={"file": ("p.json", PGBENCH.read_bytes())}))
    assert found["state"] == "ready"
    return schemathesis.openapi.from_asgi("/api/openapi.json", app, headers={"Host": "127.0.0.1"})


schema = schemathesis.pytest.from_fixture("api_schema")


@schema.parametrize()
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
def test_no_request_is_answered_with_a_fault_of_the_server(case: schemathesis.Case) -> None:
    case.headers = {**(case.headers or {}), "Host": "127.0.0.1"}
    case.call_and_validate(checks=[not_a_server_error, status_code_conformance, response_schema_conformance])

"""Volume types and QoS specs that a run creates, which needs an administrator: creation, search, deletion."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import ConflictException, NotFoundException, raise_from_response

from cephfit.cloud.cloud_connection import json_of, made_once, persistently
from cephfit.cloud.volumes.cinder_volumes import require_types
from cephfit.cloud.volumes.qos import Qos
from cephfit.core.errors import ClusterError, InputError

RUN_SPEC = "cephfit:run"
"""Extra spec of a run's volume types. It has a prefix because schedulers match keys without one to back ends."""
_FORBIDDEN = (401, 403)


@dataclass(frozen=True, slots=True)
class QosSpec:
    """A QoS spec as Cinder lists it.

    Attributes:
        id: Cinder's.
        name: unique in the cloud.
    """

    id: str
    name: str


def why_not_made(cloud: Connection, base: str) -> str:
    """Return why this user cannot create a copy of a volume type with other QoS; empty if it is possible."""
    answer = persistently(json_of, cloud, "/qos-specs", _FORBIDDEN, where="QoS specs")
    if answer is None:
        return "QoS is set by the cloud's administrators, and this user is not one"
    type_id = require_types(cloud, [base])[base]
    if persistently(json_of, cloud, f"/types/{type_id}/encryption", _FORBIDDEN, where=f"volume type {base}"):
        return f"volume type {base} encrypts its volumes, and a copy of it would not"
    return ""


def ensure(cloud: Connection, run_id: str, name: str, base: str, qos: Qos) -> None:
    """Ensure a private volume type with QoS, otherwise like ``base``. Parts from a killed process are reused.

    Args:
        cloud: connection of an administrator.
        run_id: its owner.
        name: of the type, and of the QoS spec.
        base: type to copy the extra specs from, which place its volumes in the same back end.
        qos: limits of its volumes.

    Raises:
        InputError: the type ``base`` does not exist.
        ClusterError: Cinder refuses, or the name belongs to a type of another owner.
    """
    spec_id = _spec_named(cloud, name) or _make_spec(cloud, name, qos)
    types = {str(one.name): one for one in volume_types(cloud)}
    if base not in types:
        raise InputError(f"the cloud has no volume type {base}, or this project may not use it")
    made = types.get(name) or _make_type(cloud, run_id, name, dict(types[base].extra_specs or {}))
    if run_of(made) != run_id:
        raise ClusterError("a volume type of another owner has this name", where=f"volume type {name}")
    persistently(_give_to_project, cloud, str(made.id), where=f"volume type {name}")
    persistently(_associate, cloud, spec_id, str(made.id), where=f"QoS spec {name}")


def _give_to_project(cloud: Connection, type_id: str) -> None:
    with suppress(ConflictException):  # the project already has access
        cloud.block_storage.add_type_access(type_id, cloud.current_project_id or "")


def _associate(cloud: Connection, spec_id: str, type_id: str) -> None:
    """Associate a type with a QoS spec; Cinder accepts a repeated request."""
    query = {"vol_type_id": type_id}
    raise_from_response(cloud.block_storage.get(f"/qos-specs/{spec_id}/associate", params=query))


def _make_spec(cloud: Connection, name: str, qos: Qos) -> str:
    body = {"name": name, "consumer": qos.consumer, **qos.specs}

    def make() -> str:
        answer = cloud.block_storage.post("/qos-specs", json={"qos_specs": body})
        raise_from_response(answer)
        return str(answer.json()["qos_specs"]["id"])

    # The name ends with the run's hash: no other spec has it.
    return made_once(make, lambda: _spec_named(cloud, name), where=f"QoS spec {name}")


def _spec_named(cloud: Connection, name: str) -> str | None:
    return next((spec.id for spec in qos_specs(cloud) if spec.name == name), None)


def _make_type(cloud: Connection, run_id: str, name: str, extra_specs: Mapping[str, str]) -> Any:
    def make() -> Any:
        return cloud.block_storage.create_type(
            name=name,
            description=f"cephfit run {run_id}",
            is_public=False,  # other projects must not depend on it
            extra_specs={**extra_specs, RUN_SPEC: run_id},
        )

    def find() -> Any:
        return next((one for one in volume_types(cloud) if one.name == name and run_of(one) == run_id), None)

    return made_once(make, find, where=f"volume type {name}")


def delete(cloud: Connection, run_id: str, name: str) -> None:
    """Delete a run's volume type and QoS spec. Missing ones are no error.

    Raises:
        ClusterError: Cinder refuses, because volumes of the type still exist.
    """
    # Delete the type first, without dissociating the spec: existing volumes must keep their QoS.
    for made in volume_types(cloud):
        if made.name == name and run_of(made) == run_id:
            persistently(cloud.block_storage.delete_type, made.id, where=f"volume type {name}")
    if (spec_id := _spec_named(cloud, name)) is not None:
        persistently(delete_spec, cloud, spec_id, where=f"QoS spec {name}")


def run_of(volume_type: Any) -> str | None:
    """Return the run of a volume type; None where there is none or this user may not see it."""
    found = (volume_type.extra_specs or {}).get(RUN_SPEC)
    return str(found) if found else None


def volume_types(cloud: Connection) -> list[Any]:
    """Return all volume types that this user may see, including private ones."""
    return persistently(lambda: list(cloud.block_storage.types(is_public="None")), where="volume types")


def qos_specs(cloud: Connection) -> list[QosSpec]:
    """Return all QoS specs; empty for users to whom Cinder shows none."""
    found = persistently(json_of, cloud, "/qos-specs", _FORBIDDEN, where="QoS specs") or {}
    return [QosSpec(str(one["id"]), str(one["name"])) for one in found.get("qos_specs", ())]


def spec_status(cloud: Connection, spec_id: str) -> str | None:
    """Return an empty status; None when the spec is gone."""
    return None if json_of(cloud, f"/qos-specs/{spec_id}", (404,)) is None else ""


def delete_spec(cloud: Connection, spec_id: str) -> None:
    """Delete a QoS spec; Cinder refuses while a volume type uses it."""
    try:
        raise_from_response(cloud.block_storage.delete(f"/qos-specs/{spec_id}"))
    except NotFoundException:
        return

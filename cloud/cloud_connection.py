"""Connection to a cloud, with retries and one-sentence errors of its services."""

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import keystoneauth1.exceptions as keystone
import openstack
import requests
from openstack.config import OpenStackConfig
from openstack.connection import Connection
from openstack.exceptions import (
    ConfigException,
    ConflictException,
    ForbiddenException,
    HttpException,
    ResourceTimeout,
    SDKException,
    ServiceDiscoveryException,
    raise_from_response,
)
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from cephfit.core.errors import ClusterError, InputError
from cephfit.core.yaml_lines import nearest

_ATTEMPTS = 8
"""ErrorCollector over half a minute: a service that restarts behind its load balancer is available by then."""
_ANSWER_SECONDS = 120.0
"""Timeout of a request without an answer; ``api_timeout`` of clouds.yaml has precedence."""
HIDDEN = (401, 403, 404)
"""Status codes of services for resources that this user may not see."""
_TOO_MANY_REQUESTS = 429
_UNREACHED = (
    keystone.ConnectFailure,
    keystone.RetriableConnectionFailure,
    keystone.UnknownConnectionError,  # a truncated answer
    # The first request asks a service for its versions; the error does not contain its answer.
    keystone.DiscoveryFailure,
    ServiceDiscoveryException,
)
_TAG = re.compile(r"<[^>]*>")
_ENVIRONMENT = ("OS_CLOUD", "OS_AUTH_URL")
logging.getLogger("keystoneauth").addHandler(logging.NullHandler())  # its warnings repeat the error's sentence
_Answer = TypeVar("_Answer")


def connect(cloud: str) -> Connection:
    """Connect to a cloud by its name in clouds.yaml; an empty name uses ``OS_CLOUD`` or the ``OS_*`` variables.

    Without any of these no cloud is used, even if clouds.yaml has only one: commands delete resources there.

    Raises:
        InputError: there is no such cloud, or its entry is incomplete.
        ClusterError: Keystone does not answer, or refuses.
    """
    if not cloud and not any(map(os.environ.get, _ENVIRONMENT)):
        raise _no_cloud()
    try:
        connection = openstack.connect(cloud=cloud or None, app_name="cephfit")
    except (ConfigException, keystone.MissingRequiredOptions) as error:
        named = cloud or os.environ.get("OS_CLOUD", "")
        if not named:
            raise _no_cloud() from None
        raise InputError(
            f"the cloud {named} cannot be used: {one_line(error)}", where="clouds.yaml", remedy=_which_cloud(named)
        ) from None
    if connection.session.timeout is None:
        connection.session.timeout = _ANSWER_SECONDS
    with as_cluster_error(f"cloud {connection.name}"):
        # The SDK's authorize() gives fewer details. A refused connection is not retried: the address may be wrong.
        _again_while(_is_overloaded)(connection.session.get_token)
    return connection


def _no_cloud() -> InputError:
    return InputError(
        "no cloud is named", where="neither on the command line nor in OS_CLOUD", remedy=_which_cloud("")
    )


def _which_cloud(named: str) -> str:
    """Return a remedy that names the clouds of this user's clouds.yaml."""
    try:
        known = [name for name in OpenStackConfig().get_cloud_names() if name not in ("envvars", "defaults")]
    except ConfigException:
        known = []
    if not known:
        return "write a clouds.yaml in this folder or in ~/.config/openstack, and name one of its clouds"
    if named in known:
        return "correct its entry in clouds.yaml"
    return nearest(named, known)


@contextmanager
def as_cluster_error(where: str) -> Iterator[None]:
    """Convert errors of OpenStack inside the block into ClusterError, with the service's own reason.

    Raises:
        ClusterError: a service refused, did not answer, or its answer is not JSON.
    """
    try:
        yield
    except keystone.Unauthorized as error:
        raise ClusterError(
            f"Keystone refuses the log-in: {one_line(error)}",
            where=where,
            remedy="check the user, password or application credential in clouds.yaml; a token may have expired",
        ) from None
    except ForbiddenException as error:
        raise ClusterError(
            f"not allowed: {one_line(error)}",
            where=where,
            remedy="the project's quota or the user's role does not allow it; see `cephfit cloud check`",
        ) from None
    except (*_UNREACHED, keystone.EndpointNotFound) as error:
        raise ClusterError(
            f"a service of the cloud does not answer: {one_line(error)}",
            where=where,
            remedy="check the endpoints of the catalogue, and whether this machine can reach them",
        ) from None
    except ResourceTimeout as error:
        raise ClusterError(f"it took too long: {one_line(error)}", where=where) from None
    except (SDKException, keystone.ClientException) as error:
        raise ClusterError(one_line(error), where=where) from None
    except requests.JSONDecodeError as error:
        raise ClusterError(f"the answer is not JSON: {_plain(str(error.doc))[:200]}", where=where) from None


def one_line(error: Exception) -> str:
    """Return a service's message without class names, addresses and request ids."""
    details = getattr(error, "details", None)
    text = _in_body(error) or (details if isinstance(details, str) and details.strip() else str(error))
    message = _plain(text)
    for noise in (" (HTTP ", ": HTTPConnectionPool(", ": HTTPSConnectionPool("):
        message = message.partition(noise)[0]
    return message.removesuffix(".") or type(error).__name__


def _plain(text: str) -> str:
    """Return a text as one line; of an HTML page, such as a proxy's, the text without tags."""
    return " ".join((_TAG.sub(" ", text) if text.lstrip().startswith("<") else text).split())


def _in_body(error: Exception) -> str:
    """Return Heat's reason, which is in the response: ``error.message``, or the type where it is empty."""
    response = getattr(error, "response", None)
    try:
        body = response.json() if response is not None else {}
    except ValueError:
        return ""
    fault = body.get("error") if isinstance(body, dict) else None
    if not isinstance(fault, dict):
        return ""
    return str(fault.get("message") or "") or f"{body.get('explanation', '')} ({fault.get('type', 'no reason')})"


def is_passing(error: BaseException) -> bool:
    """Return whether the same call may succeed later, because the service is overloaded or restarting."""
    return _is_overloaded(error) or isinstance(error, _UNREACHED)


def _is_overloaded(error: BaseException) -> bool:
    # The attribute's name in the SDK, keystoneauth and python-novaclient.
    found = (getattr(error, name, None) for name in ("status_code", "http_status", "code"))
    status = next((one for one in found if isinstance(one, int)), 0)
    return status >= 500 or status == _TOO_MANY_REQUESTS


def _again_while(is_worth_it: Callable[[BaseException], bool]) -> Retrying:
    return Retrying(
        retry=retry_if_exception(is_worth_it),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_exponential(multiplier=0.5, max=8),
        reraise=True,
    )


def persistently(call: Callable[..., _Answer], *arguments: object, where: str) -> _Answer:
    """Make a call, and repeat it while its failure is transient. The call must be safe to repeat.

    Args:
        call: called with ``arguments``.
        where: for messages.

    Raises:
        ClusterError: the failure lasts, or is not transient.
    """
    with as_cluster_error(where):
        return _again_while(is_passing)(call, *arguments)


def made_once(make: Callable[[], _Answer], find: Callable[[], _Answer | None], *, where: str) -> _Answer:
    """Create a resource, with retries on transient failures, but never twice.

    A service may have created it although its answer was lost. So the resource is searched for before each retry,
    and after a conflict of its name or status.

    Args:
        make: the call that creates it.
        find: returns the resource if it exists and belongs to the run; else None.
        where: for messages.

    Raises:
        ClusterError: the failure lasts, or is not transient.
    """
    n_asked = 0

    def attempt() -> _Answer:
        nonlocal n_asked
        n_asked += 1
        if n_asked > 1 and (found := find()) is not None:
            return found
        try:
            return make()
        except ConflictException:
            if n_asked > 1 and (found := find()) is not None:
                return found
            raise

    return persistently(attempt, where=where)


def none_if(missing: tuple[int, ...], call: Callable[..., _Answer], *arguments: object) -> _Answer | None:
    """Make a call of the SDK; return None for one of the status codes ``missing``."""
    try:
        return call(*arguments)
    except HttpException as error:
        if error.status_code in missing:
            return None
        raise


def json_of(
    cloud: Connection, path: str, missing: tuple[int, ...] = (), *, service: str = "block_storage", **more: Any
) -> dict[str, Any] | None:
    """Return a service's JSON answer where the SDK has no call; None for one of the status codes ``missing``.

    Args:
        cloud: connection.
        path: below the service's endpoint.
        missing: status codes.
        service: its name in the SDK's connection.
        more: arguments of the request, such as ``params``.
    """
    answer = getattr(cloud, service).get(path, **more)
    if answer.status_code in missing:
        return None
    raise_from_response(answer)
    return dict(answer.json())

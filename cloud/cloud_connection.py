"""A connection to a cloud, and what its services say as one sentence each."""

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
    ResourceTimeout,
    SDKException,
    ServiceDiscoveryException,
    raise_from_response,
)
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from cephfit.core.errors import ClusterError, InputError
from cephfit.core.yaml_lines import nearest

_ATTEMPTS = 8
"""Over half a minute: a service that is restarted behind its load balancer is back by then."""
_ANSWER_SECONDS = 120.0
"""Longer nobody waits for a service that took a request and never answers; clouds.yaml's ``api_timeout`` wins."""
HIDDEN = (401, 403, 404)
"""What services answer to those to whom something is not shown."""
_TOO_MANY_REQUESTS = 429
_UNREACHED = (
    keystone.ConnectFailure,
    keystone.RetriableConnectionFailure,
    keystone.UnknownConnectionError,  # an answer that broke off
    # A service is asked for its versions before it is asked anything else, and nobody says what it answered.
    keystone.DiscoveryFailure,
    ServiceDiscoveryException,
)
_TAG = re.compile(r"<[^>]*>")
_SAID_BY_ENVIRONMENT = ("OS_CLOUD", "OS_AUTH_URL")
logging.getLogger("keystoneauth").addHandler(logging.NullHandler())  # an error says in a sentence what it warns of
_Answer = TypeVar("_Answer")


def connect(cloud: str) -> Connection:
    """A connection by name in clouds.yaml; an empty name takes ``OS_CLOUD`` or the ``OS_*`` variables.

    Without any of these no cloud is taken, also where clouds.yaml has only one: commands delete things there.

    Raises:
        InputError: there is no such cloud, or what is said of it is not enough.
        ClusterError: Keystone does not answer, or refuses.
    """
    if not cloud and not any(map(os.environ.get, _SAID_BY_ENVIRONMENT)):
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
    with server_output(f"cloud {connection.name}"):
        # The SDK's own authorize() says less of what went wrong. That nobody listens there is said at once: it may
        # be a wrong address.
        _again_while(_is_overloaded)(connection.session.get_token)
    return connection


def _no_cloud() -> InputError:
    return InputError(
        "no cloud is named", where="neither on the command line nor in OS_CLOUD", remedy=_which_cloud("")
    )


def _which_cloud(named: str) -> str:
    """What can be named: the clouds of this person's clouds.yaml."""
    try:
        known = [name for name in OpenStackConfig().get_cloud_names() if name not in ("envvars", "defaults")]
    except ConfigException:
        known = []
    if not known:
        return "write a clouds.yaml, in this folder or in ~/.config/openstack, and name a cloud of it"
    if named in known:
        return "correct its entry in clouds.yaml"
    return nearest(named, known)


@contextmanager
def server_output(where: str) -> Iterator[None]:
    """Errors of OpenStack inside the block become those of cephfit, with the service's own reason.

    Raises:
        ClusterError: a service refused, did not answer, or answered something else than JSON.
    """
    try:
        yield
    except keystone.Unauthorized as error:
        raise ClusterError(
            f"Keystone refuses the log-in: {one_line(error)}",
            where=where,
            remedy="see the user, password or application credential in clouds.yaml; a token may have expired",
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
            remedy="see the endpoints of the catalogue, and whether they can be reached from here",
        ) from None
    except ResourceTimeout as error:
        raise ClusterError(f"it took too long: {one_line(error)}", where=where) from None
    except (SDKException, keystone.ClientException) as error:
        raise ClusterError(one_line(error), where=where) from None
    except requests.JSONDecodeError as error:
        raise ClusterError(f"the answer is not JSON: {_plain(str(error.doc))[:200]}", where=where) from None


def one_line(error: Exception) -> str:
    """What a service said, without the class names, addresses and request ids around it."""
    details = getattr(error, "details", None)
    text = _in_body(error) or (details if isinstance(details, str) and details.strip() else str(error))
    said = _plain(text)
    for noise in (" (HTTP ", ": HTTPConnectionPool(", ": HTTPSConnectionPool("):
        said = said.partition(noise)[0]
    return said.removesuffix(".") or type(error).__name__


def _plain(text: str) -> str:
    """One line; of a page that something before the service answered with, its words."""
    return " ".join((_TAG.sub(" ", text) if text.lstrip().startswith("<") else text).split())


def _in_body(error: Exception) -> str:
    """Heat's reason, which the SDK leaves in the answer: ``error.message``, with the type where it is empty."""
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
    """Whether the same call may succeed a little later: the service is overloaded or being restarted."""
    return _is_overloaded(error) or isinstance(error, _UNREACHED)


def _is_overloaded(error: BaseException) -> bool:
    # As the SDK, keystoneauth and python-novaclient call it.
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
    """Make a call that changes nothing, or may be made twice, again while its failure is a passing one.

    Args:
        call: called with ``arguments``.
        where: for messages.

    Raises:
        ClusterError: it still fails, or fails for good.
    """
    with server_output(where):
        return _again_while(is_passing)(call, *arguments)


def made_once(make: Callable[[], _Answer], find: Callable[[], _Answer | None], *, where: str) -> _Answer:
    """Have something made, again while the failure is a passing one, and yet never twice.

    A service may have done it although its answer was lost. So it is looked for before it is asked for again, and
    where its name or its status was in the way of that.

    Args:
        make: the call.
        find: what it would have made, if that is there and ours; else None.
        where: for messages.

    Raises:
        ClusterError: it still fails, or fails for good.
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


def json_of(
    cloud: Connection, path: str, missing: tuple[int, ...] = (), *, service: str = "block_storage", **more: Any
) -> dict[str, Any] | None:
    """What a service answers where SDKs have no call; None for an answer with one of these codes.

    Args:
        cloud: connection.
        path: below the service's endpoint.
        missing: codes.
        service: as the SDK's connection calls it.
        more: of the request, such as ``params``.
    """
    answer = getattr(cloud, service).get(path, **more)
    if answer.status_code in missing:
        return None
    raise_from_response(answer)
    return dict(answer.json())

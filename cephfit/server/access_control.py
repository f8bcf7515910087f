"""Who may use the server: the Host and Origin headers, the token, and headers of every answer."""

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cephfit.core.errors import RefusedError

COOKIE = "cephfit_session"
_FREE_PATHS = ("/login", "/static/style.css")
"""Paths that need no token."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_LOGIN_NBYTES = 4096
_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a server.

    Attributes:
        token: that each request must have; empty: none is needed.
        is_local: the server listens on a loopback address only.
        host_names: names under which it may be called, next to addresses and localhost.
    """

    token: str = ""
    is_local: bool = True
    host_names: tuple[str, ...] = ()

    @property
    def session(self) -> str:
        """Value of the cookie; the token cannot be computed from it."""
        return hashlib.sha256(b"cephfit session " + self.token.encode()).hexdigest()

    def is_token(self, given: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(given.encode(), self.token.encode())

    def has_token(self, headers: Headers) -> bool:
        """Return whether a request has the token, as a bearer or in its cookie."""
        if not self.token:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self.session.encode())

    def refuse_other_hosts(self, host: str) -> None:
        """Refuse names that someone else may have pointed at this address (DNS rebinding).

        An address in the header is safe, because no one else controls what it means.

        Raises:
            RefusedError: the name is not one of this server.
        """
        name = _host_of(host)
        if name in ("localhost", *self.host_names):
            return
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            address = None
        if address is None or (self.is_local and not address.is_loopback):
            raise RefusedError(
                400,
                "this server does not go by that name",
                where=f"Host: {host[:100]}",
                remedy="use its address, or start it with --host-name NAME",
            )


def _host_of(netloc: str) -> str:
    """Return the host of ``host:port``, in lower case; empty if it has another form."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def refuse_other_origins(method: str, headers: Headers) -> None:
    """Refuse requests that change something and come from another site's page (CSRF).

    Browsers name the origin in each of them. Programs such as curl send none, and have no cookies of a browser.

    Raises:
        RefusedError: the origin is another one.
    """
    if method in _SAFE_METHODS:
        return
    origin = headers.get("origin")
    is_same = origin is None or origin.partition("://")[2] == headers.get("host", "")
    if not is_same or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise RefusedError(
            403,
            "the request comes from a page of another site",
            where=f"Origin: {(origin or '')[:100]}",
            remedy="use the page of this server",
        )


class AccessControl:
    """ASGI middleware: checks each request before anything else sees it.

    Args:
        app: the application.
        access: who may use it.
        refused: answers a refusal, for the path of the request.
    """

    def __init__(self, app: ASGIApp, access: Access, refused: Callable[[str, RefusedError], Response]) -> None:
        self._app = app
        self._access = access
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app: ASGIApp
        try:
            app = await self._checked(scope, receive)
        except RefusedError as refusal:
            app = self._refused(scope["path"], refusal)
        await app(scope, receive, send_with_headers)

    async def _checked(self, scope: Scope, receive: Receive) -> ASGIApp:
        headers, path = Headers(scope=scope), scope["path"]
        self._access.refuse_other_hosts(headers.get("host", ""))
        refuse_other_origins(scope["method"], headers)
        if self._access.token and path == "/login" and scope["method"] == "POST":
            return await self._login(Request(scope, receive))
        if path in _FREE_PATHS or self._access.has_token(headers):
            return self._app
        if path.startswith("/api/"):
            raise RefusedError(
                401,
                "the token is missing or wrong",
                where="Authorization",
                remedy="send Authorization: Bearer TOKEN",
            )
        return RedirectResponse("/login", 303)

    async def _login(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LOGIN_NBYTES:
                raise RefusedError(413, "that is no token", remedy="enter the token that the server printed")
        given = parse_qs(body.decode(errors="replace")).get("token", [""])[0].strip()
        if not self._access.is_token(given):
            raise RefusedError(
                401, "that is not the token", remedy="enter the token that the server printed at its start"
            )
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, self._access.session, httponly=True, samesite="strict", path="/")
        return answer


def known_names(names: Collection[str]) -> tuple[str, ...]:
    """Return host names as they are compared."""
    return tuple(name.lower().rstrip(".") for name in names)

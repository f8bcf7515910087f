"""Errors that a client of the server caused, with their HTTP status."""

from cephfit.core.errors import CephfitError, InputError, StoreError


class RefusedError(CephfitError):
    """A request that the server refuses.

    Args:
        status: HTTP status, 400 to 499.
        what, where, remedy: as for ``CephfitError``.
    """

    def __init__(self, status: int, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.status = status


def status_of(error: CephfitError) -> int:
    """Return the HTTP status of an error: 404 for missing stores and runs, 422 for input that cannot be used."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, StoreError):
        return 404
    return 422 if isinstance(error, InputError) else 409

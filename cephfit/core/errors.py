"""Errors that a user can fix: what was wrong, where, and what to do."""


class CephfitError(Exception):
    """A fault of the input or of the environment, not a bug of the program.

    The command line prints it without a traceback and exits with code 2.

    Args:
        what: what was wrong, one sentence without a final full stop.
        where: the place: file, line, record, byte offset, host, daemon or option.
        remedy: what the user can do now.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  {self.remedy}" if self.remedy else text

    @property
    def on_one_line(self) -> str:
        """The text for a table or a note: the remedy follows after a semicolon."""
        return "; ".join(line.strip() for line in str(self).splitlines())


class InputError(CephfitError):
    """A file or argument of the user cannot be used (sweep file, trace, profile, CSV)."""


class HostError(CephfitError):
    """This machine lacks something: a program, a package, a privilege, disk space."""


class LackingError(HostError):
    """Retrying cannot help until the user supplies something: a program, a package, a privilege."""


class ClusterError(CephfitError):
    """A cluster refused, did not answer, is unhealthy, or did not apply a setting."""


class StoreError(CephfitError):
    """The results store cannot be opened, has another schema version, or is in use."""


class MissingStoreError(StoreError):
    """There is no results store yet; a command that writes creates it."""


class RefusedError(CephfitError):
    """A request that the server refuses.

    Args:
        status: HTTP status, 400 to 499.
        what, where, remedy: as for ``CephfitError``.
    """

    def __init__(self, status: int, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.status = status

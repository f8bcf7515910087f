"""Errors a person can act on: what was wrong, where, and what to do about it."""


class CephfitError(Exception):
    """A fault of the input or the surroundings, not of the program.

    The command line prints it without a traceback and exits with code 2.

    Args:
        what: what was wrong, one sentence without a final full stop.
        where: the place: file, line, record, byte offset, host, daemon or option.
        remedy: what the person can do now.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  {self.remedy}" if self.remedy else text


class InputError(CephfitError):
    """A file or argument that a person gave cannot be used (sweep file, trace, profile, CSV)."""


class HostError(CephfitError):
    """Something this machine lacks: a program, a package, a privilege, room on a disk."""


class LackingError(HostError):
    """What no later try finds either until a person brings it: a program, a package, a privilege."""


class ClusterError(CephfitError):
    """A cluster refused, did not answer, is unhealthy, or did not take a setting."""


class StoreError(CephfitError):
    """The store of results cannot be opened, is of another schema version, or is in use."""

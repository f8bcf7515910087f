"""What is kept of each disk over a stretch of a trace, up to a number of disks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, Self, TypeVar


class Stretch(Protocol):
    """What is kept of one disk."""

    def followed_by(self, later: Self) -> Self:
        """Join a later stretch of the same disk."""


_Kept = TypeVar("_Kept", bound=Stretch)


@dataclass(frozen=True, slots=True)
class PerDisk(Generic[_Kept]):
    """Stretches by disk; they join as partial profiles do. With too many disks none is kept.

    Attributes:
        disks: By disk name; empty if there were too many.
        too_many: More than ``most`` disks were found.
    """

    most: ClassVar[int]

    disks: Mapping[str, _Kept] = field(default_factory=dict)
    too_many: bool = False

    def followed_by(self, later: Self) -> Self:
        """Add a stretch of other disks, or a later one of the same disks."""
        disks = dict(self.disks)
        for name, its in later.disks.items():
            disks[name] = disks[name].followed_by(its) if name in disks else its
        if self.too_many or later.too_many or len(disks) > self.most:
            return type(self)(too_many=True)
        return type(self)(disks)

    def renamed(self, *, prefix: str = "", only_disk: str | None = None) -> Self:
        """Return the same with a prefix before the disk names, or with the only disk named ``only_disk``."""
        return type(self)({only_disk or f"{prefix}{n}": its for n, its in self.disks.items()}, self.too_many)

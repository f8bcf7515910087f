"""Which images run which workload, and the volume type that new volumes from them get."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

IMAGE_PROPERTY = "cinder_img_volume_type"
"""Image property that Cinder takes the type of a new volume from, unless the user names a type."""


SELECTORS = ("--property", "--tag")
"""Options of ``openstack image list`` that select images."""


@dataclass(frozen=True, slots=True)
class ImageRule:
    """Images with a property or a tag run a workload.

    Attributes:
        selection: arguments of ``openstack image list`` that select them.
        workload: name.
    """

    selection: tuple[str, str]
    workload: str


@dataclass(frozen=True, slots=True)
class ImageChange:
    """Sets the volume type of the images of a rule.

    Attributes:
        rule: selects the images.
        volume_type: of new volumes from them.
    """

    rule: ImageRule
    volume_type: str

    @property
    def command(self) -> str:
        return self._each(["set", "--property", f"{IMAGE_PROPERTY}={self.volume_type}"])

    @property
    def undo(self) -> str:
        return self._each(["unset", "--property", IMAGE_PROPERTY])

    def _each(self, change: Sequence[str]) -> str:
        selected = shlex.join(["openstack", "image", "list", *self.rule.selection, "-f", "value", "-c", "ID"])
        return f"{selected} | xargs -r -n 1 {shlex.join(['openstack', 'image', *change])}"

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.rule.workload,
            "images": dict([self.rule.selection]),
            "volume_type": self.volume_type,
            "command": self.command,
            "undo": self.undo,
        }

    @classmethod
    def from_json(cls, document: Any) -> "ImageChange":
        """Read what ``to_json`` wrote.

        Raises:
            KeyError, TypeError, ValueError: it has another form.
        """
        ((option, text),) = document["images"].items()
        named = (text, document["workload"], document["volume_type"])
        if option not in SELECTORS or not all(isinstance(word, str) and word for word in named):
            raise ValueError(f"{option!r} is not one of {', '.join(SELECTORS)}, or a name is missing")
        return cls(ImageRule((option, text), str(document["workload"])), str(document["volume_type"]))

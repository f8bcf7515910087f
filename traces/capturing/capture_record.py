"""The trace that a guest took of its volume, kept as a file: block tracepoints as text, compressed.

What a capture says about itself: to the person, and in a small file beside the trace it wrote.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cephfit.core.errors import InputError

SCHEMA_VERSION = 1
SUFFIX = ".capture.json"


EVENTS_SUFFIX = ".events.gz"
"""Of the file that a guest's events are kept in."""


@dataclass(slots=True)
class CaptureReport:
    """A capture, filled in when it ends.

    Attributes:
        device: block device that was traced.
        method: ``blktrace``, ``tracefs`` (the kernel's own blk tracer), or how a guest recorded itself.
        why_method: why blktrace was not used; empty if it was.
        seconds: how long events were recorded.
        files: of the trace, one for each CPU that saw events.
        nbytes: of all files together.
        lost_events: that did not fit into the kernel's buffers.
    """

    device: str
    method: str = ""
    why_method: str = ""
    seconds: float = 0.0
    files: tuple[str, ...] = field(default_factory=tuple)
    nbytes: int = 0
    lost_events: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **asdict(self), "files": list(self.files)}


@dataclass(frozen=True, slots=True)
class Captured:
    """What a later reader of the trace must know about how it was made."""

    method: str
    lost: int


def record_path(folder: Path, stem: str) -> Path:
    """The file beside the trace files ``STEM.blktrace.N``."""
    return folder / f"{stem}{SUFFIX}"


def of_files(files: Sequence[Path]) -> Captured | None:
    """What was written beside the files of one recording; None where they were captured by other means.

    Raises:
        InputError: the file beside them is damaged.
    """
    name = files[0].name
    stem = name.partition(".blktrace.")[0].removesuffix(EVENTS_SUFFIX)
    path = record_path(files[0].parent, stem)
    if stem == name or not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Captured(str(document["method"]), int(document["lost_events"]))
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise InputError(
            "this is not what a capture writes about itself",
            where=str(path),
            remedy="delete the file: then lost events are not known",
        ) from None


def file_of(output: Path, client: str) -> Path:
    """Where the trace of a client goes: ``CLIENT.events.gz`` in a folder that is there, else ``OUTPUT.events.gz``.

    Raises:
        InputError: there is one already, or the folder is not there.
    """
    file = (
        output / f"{client}{EVENTS_SUFFIX}" if output.is_dir() else output.with_name(output.name + EVENTS_SUFFIX)
    )
    if not file.parent.is_dir():
        raise InputError("this folder does not exist", where=str(file.parent), remedy="create it first")
    if file.exists():
        raise InputError(
            "there is already a trace here", where=str(file), remedy="choose another place, or delete it"
        )
    return file


def keep(text: str, lost_events: int, file: Path, *, volume: str, seconds: float) -> CaptureReport:
    """Write a guest's trace, and beside it how it was made and what was lost.

    Args:
        text: lines of events.
        lost_events: that the guest had no room for.
        file: see ``file_of``.
        volume: as the guest calls its device.
        seconds: how long events were recorded.
    """
    file.write_bytes(gzip.compress(text.encode(), mtime=0))
    report = CaptureReport(
        device=volume,
        method="tracepoints in the guest",
        seconds=seconds,
        files=(str(file),),
        nbytes=file.stat().st_size,
        lost_events=lost_events,
    )
    place = record_path(file.parent, file.name.removesuffix(EVENTS_SUFFIX))
    place.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    return report

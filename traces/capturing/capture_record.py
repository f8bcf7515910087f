"""The record of a capture: the report for the user, and a small file next to the trace.

This module also writes the trace of a guest's volume: block tracepoints as compressed text.
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
"""Suffix of the file with a guest's events."""


@dataclass(slots=True)
class CaptureReport:
    """The report of a capture, completed when it ends.

    Attributes:
        device: Block device that was traced.
        method: ``blktrace``, ``tracefs`` (the kernel's blk tracer), or the method of a guest.
        why_method: Why blktrace was not used; empty if it was.
        seconds: Duration of the recording.
        files: Files of the trace, one for each CPU with events.
        nbytes: Total size of the files.
        lost_events: Number of events that did not fit into the kernel's buffers.
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
    """What a reader of the trace must know about its capture."""

    method: str
    lost: int


def record_path(folder: Path, stem: str) -> Path:
    """Return the record's file, next to the trace files ``STEM.blktrace.N``."""
    return folder / f"{stem}{SUFFIX}"


def of_files(files: Sequence[Path]) -> Captured | None:
    """Return the record of the files of one recording; None if cephfit did not capture them.

    Raises:
        InputError: The record is damaged.
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
            "this is not the record of a capture",
            where=str(path),
            remedy="delete the file; lost events are then unknown",
        ) from None


def file_of(output: Path, client: str) -> Path:
    """Return the trace file of a client: ``CLIENT.events.gz`` in an existing folder, else ``OUTPUT.events.gz``.

    Raises:
        InputError: The file exists, or its folder does not.
    """
    file = (
        output / f"{client}{EVENTS_SUFFIX}" if output.is_dir() else output.with_name(output.name + EVENTS_SUFFIX)
    )
    if not file.parent.is_dir():
        raise InputError("this folder does not exist", where=str(file.parent), remedy="create it first")
    if file.exists():
        raise InputError(
            "a trace exists here already", where=str(file), remedy="choose another place, or delete it"
        )
    return file


def keep(text: str, lost_events: int, file: Path, *, volume: str, seconds: float) -> CaptureReport:
    """Write a guest's trace, and its record next to it.

    Args:
        text: Lines of events.
        lost_events: Number of events that did not fit into the guest's buffers.
        file: See ``file_of``.
        volume: The guest's name of its device.
        seconds: Duration of the recording.
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

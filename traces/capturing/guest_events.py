"""The trace that a guest took of its volume, kept as a file: block tracepoints as text, compressed."""

import gzip
import json
from pathlib import Path

from cephfit.errors import InputError
from cephfit.traces.capturing.capture_record import EVENTS_SUFFIX, CaptureReport, record_path


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

"""One recording as a stream of accesses, for what needs the accesses themselves: conversion and replay."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from cephfit.access import AccessBatch
from cephfit.errors import InputError
from cephfit.traces import formats
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.read_options import ReadOptions
from cephfit.traces.readers.block_layer import Action
from cephfit.traces.recordings import recordings_of


def accesses(
    paths: Sequence[Path],
    *,
    format_name: str | None = None,
    action: Action = Action.QUEUE,
    disk: str | None = None,
    options: ReadOptions = ReadOptions(),  # noqa: B008 - it is frozen
) -> Iterator[AccessBatch]:
    """The accesses of one recording (a file, or blktrace's files of one device), batch by batch.

    Args:
        paths: as for ``profile_files``.
        format_name: None: told by the content.
        action: which event of the block layer counts as an access.
        disk: only this one.
        options: what the person says about the files.

    Raises:
        InputError: several recordings, histograms only, no such disk, or what the reader finds.
    """
    recordings = recordings_of(paths)
    if len(recordings) != 1:
        raise InputError(
            f"there are {len(recordings)} recordings, one is needed",
            where=", ".join(map(str, paths)),
            remedy="name one trace file, or the files of one blktrace recording",
        )
    with ExitStack() as stack:
        streams = [stack.enter_context(TraceStream(f)) for f in recordings[0].files]
        format_name = options.format_name or format_name
        if format_name is None:
            format_name = formats.format_of(next((s for s in streams if s.head()), streams[0]))
        reader = next((r for r in formats.readers(action, options) if r.name == format_name), None)
        if reader is None:
            raise InputError(
                f"{format_name} has no single accesses", where=streams[0].name, remedy="give a trace of accesses"
            )
        seen = False
        names: tuple[str, ...] = ()
        for batch in reader.read_together(streams):
            names = batch.disks if reader.names_disks else (recordings[0].name,) * len(batch.disks)
            batch = replace(batch, disks=names)
            if disk is not None:
                batch = _only(batch, disk)
            seen = seen or len(batch) > 0
            yield batch
        if not seen:
            known = (
                f"its disks are {', '.join(names[:64])}" if disk is not None else "record it during the workload"
            )
            what = f"the trace has no access of disk {disk!r}" if disk is not None else "the trace has no accesses"
            raise InputError(what, where=streams[0].name, remedy=known)


def _only(batch: AccessBatch, disk: str) -> AccessBatch:
    mine = np.flatnonzero(batch.disk == (batch.disks.index(disk) if disk in batch.disks else -1))
    return replace(
        batch,
        time_ns=batch.time_ns[mine],
        op=batch.op[mine],
        lbn=batch.lbn[mine],
        nbytes=batch.nbytes[mine],
        disk=np.zeros(len(mine), np.int32),
        disks=(disk,),
        latency_ns=None if batch.latency_ns is None else batch.latency_ns[mine],
        outstanding=None if batch.outstanding is None else batch.outstanding[mine],
        stacked=(),
    )

"""Block traces that guests record: shell functions for their jobs, and parsing the trace in a job's output.

The events are those of the kernel's block layer (Linux, include/trace/events/block.h) for the volume only:
``block_bio_queue``, like a capture of a device, and ``block_rq_complete`` for latencies.
"""

import re
from dataclasses import dataclass
from importlib import resources

import jinja2

from cephfit import templates
from cephfit.core.errors import ClusterError
from cephfit.core.units import KIB, MIB

_BUFFER_NBYTES = 16 * MIB
"""Buffer in the guest's memory, for some 200,000 events."""
_MOST_NBYTES = {"signal": 700 * KIB, "console": 16 * KIB}
"""Limit of a packed trace by the transport of results. Heat accepts 1 MiB of text at once. Nova keeps 100 KiB of a
console, where everything is printed twice."""


@dataclass(frozen=True, slots=True)
class GuestTrace:
    """Trace of a guest's volume.

    Attributes:
        text: lines in the format of the kernel's tracing folder.
        lost_events: number of events that did not fit into the guest's buffer.
    """

    text: str
    lost_events: int


def functions(results_by: str) -> str:
    """Return the shell functions ``trace_begin DEVICE`` and ``trace_end``, which prints the trace.

    Args:
        results_by: transport of results; ``console`` where it is not known yet.
    """
    text = resources.files(templates).joinpath("guest/trace.sh.j2").read_text()
    template = jinja2.Template(text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    most_nbytes = _MOST_NBYTES.get(results_by, _MOST_NBYTES["console"])
    return str(template.render(buffer_kib=_BUFFER_NBYTES // KIB, most_nbytes=most_nbytes))


def taken_apart(output: str) -> tuple[str, GuestTrace]:
    """Split a job's output into the output without the trace, and the trace.

    Raises:
        ClusterError: there is no trace in it, with the reason.
    """
    found = re.search(r"^CEPHFIT-TRACE-BEGIN (\d+)\n(.*?)^CEPHFIT-TRACE-END\n", output, re.M | re.S)
    if found is not None:
        return output[: found.start()] + output[found.end() :], GuestTrace(found[2], int(found[1]))
    if (large := re.search(r"^CEPHFIT-TRACE-TOO-LARGE (\d+)$", output, re.M)) is not None:
        raise ClusterError(
            f"the guest's trace has {int(large[1]) // KIB} KiB when packed, more than the guest can return",
            remedy="record for a shorter time; signals to Heat carry 40 times as much as the console",
        )
    why = re.search(r"^CEPHFIT-TRACE-NONE (.*)$", output, re.M)
    raise ClusterError(f"the guest recorded no trace: {why[1] if why is not None else 'it gave no reason'}")

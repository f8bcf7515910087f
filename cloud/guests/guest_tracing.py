"""A trace that a guest takes of itself: the functions that its job calls, and the trace in what the job printed.

The events are those of the kernel's block layer (Linux, include/trace/events/block.h) of the volume alone:
``block_bio_queue``, as a capture of a device records it, and ``block_rq_complete``, which tells latencies.
"""

import re
from dataclasses import dataclass
from importlib import resources

import jinja2

from cephfit import templates
from cephfit.core.errors import ClusterError
from cephfit.core.units import KIB, MIB

_BUFFER_NBYTES = 16 * MIB
"""In the guest's memory; some 200,000 events."""
_MOST_NBYTES = {"signal": 700 * KIB, "console": 16 * KIB}
"""A packed trace at most, by the way on which results come: Heat takes 1 MiB of text at once; Nova keeps 100 KiB
of a console, on which all is printed twice."""


@dataclass(frozen=True, slots=True)
class GuestTrace:
    """What a guest saw on its volume.

    Attributes:
        text: lines as the tracing folder shows them.
        lost_events: that did not fit into the guest's memory.
    """

    text: str
    lost_events: int


def functions(results_by: str) -> str:
    """Shell functions ``trace_begin DEVICE`` and ``trace_end``, which prints the trace.

    Args:
        results_by: on which way what is printed comes back; ``console`` where that is not known yet.
    """
    text = resources.files(templates).joinpath("guest/trace.sh.j2").read_text()
    template = jinja2.Template(text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    most_nbytes = _MOST_NBYTES.get(results_by, _MOST_NBYTES["console"])
    return str(template.render(buffer_kib=_BUFFER_NBYTES // KIB, most_nbytes=most_nbytes))


def taken_apart(output: str) -> tuple[str, GuestTrace]:
    """What a job printed without its trace, and that.

    Raises:
        ClusterError: there is no trace in it, with the reason.
    """
    found = re.search(r"^CEPHFIT-TRACE-BEGIN (\d+)\n(.*?)^CEPHFIT-TRACE-END\n", output, re.M | re.S)
    if found is not None:
        return output[: found.start()] + output[found.end() :], GuestTrace(found[2], int(found[1]))
    if (large := re.search(r"^CEPHFIT-TRACE-TOO-LARGE (\d+)$", output, re.M)) is not None:
        raise ClusterError(
            f"the guest's trace has {int(large[1]) // KIB} KiB when packed, more than comes back from it",
            remedy="record for a shorter time; signals to Heat carry 40 times as much as the console does",
        )
    why = re.search(r"^CEPHFIT-TRACE-NONE (.*)$", output, re.M)
    raise ClusterError(f"the guest took no trace: {why[1] if why is not None else 'it did not say why'}")

"""The layers of a storage stack to which CPU time is attributed."""

from enum import StrEnum


class CpuLayer(StrEnum):
    """One layer, in the order of a write, client first; the values are the words in samples and reports."""

    BENCHMARK = "benchmark program"
    CLIENT_BLOCK = "client block layer"
    LIBRBD = "librbd"
    INTERRUPTS = "interrupts and network"
    SERVER = "storage server"
    MESSENGER = "OSD messenger"
    OPS = "OSD op threads"
    STORE = "object store"
    OSD_REST = "OSD, other threads"
    MONITORS = "monitors and managers"
    KERNEL = "kernel threads"
    OTHER = "other programs"
    HYPERVISOR = "taken by the hypervisor"


NOT_OF_STORAGE = (CpuLayer.OTHER, CpuLayer.HYPERVISOR)
"""CPU time that was not used for the measured I/O."""

"""Which rows of a batch are of which disk."""

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled_in_place


@compiled_in_place
def _are_of_one(disk: NDArray[np.int32]) -> bool:
    differ = False
    for i in range(1, len(disk)):
        differ |= disk[i] != disk[0]
    return not differ


@compiled_in_place
def _sort(disk: NDArray[np.int32], next_of: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Write the rows disk by disk, those of a disk in their order.

    Args:
        disk: shape (n,).
        next_of: int64 (disks + 1,), zeros; written: where those of each disk end.
        rows: shape (n,), written.
    """
    for i in range(len(disk)):
        next_of[np.uintp(disk[i] + 1)] += 1
    for number in range(1, len(next_of)):
        next_of[number] += next_of[number - 1]
    for i in range(len(disk)):
        place = next_of[np.uintp(disk[i])]
        rows[np.uintp(place)] = i
        next_of[np.uintp(disk[i])] = place + 1


def rows_by_disk(disk: NDArray[np.int32]) -> list[tuple[int, NDArray[np.int64] | None]]:
    """The number of each disk and its rows, ascending; None: all rows.

    Args:
        disk: shape (n,), numbers from 0 on.
    """
    if not len(disk):
        return []
    if _are_of_one(disk):
        return [(int(disk[0]), None)]
    begins, ends, rows = ordered_by_disk(disk)
    return [(int(number), rows[begins[number] : ends[number]]) for number in np.flatnonzero(begins < ends)]


def ordered_by_disk(disk: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The same for many disks: where the rows of each number begin and end, and the rows, disk by disk.

    Args:
        disk: shape (n,), numbers from 0 on.
    """
    ends, rows = np.zeros(int(disk.max(initial=0)) + 2, np.int64), np.empty(len(disk), np.int64)
    _sort(disk, ends, rows)
    return np.concatenate([[0], ends[:-2]]), ends[:-1], rows

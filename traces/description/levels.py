"""Which disk lies on which other one, where they stand in different recordings."""

from collections.abc import Collection


def across_recordings(disks: Collection[str], stacked: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The pairs of ``stacked`` as disks of recordings beside each other, of one machine.

    Where an access goes from dm to the disk below it stands in the recording of the lower one, and names the upper
    one by its device number: its accesses may be in another recording.

    Args:
        disks: all that have accesses, ``RECORDING/MAJOR,MINOR``.
        stacked: (upper, lower) pairs, named by the recording in which they were seen.

    Returns:
        a pair for each disk that has the number of one that its own recording has no accesses of.
    """
    by_number: dict[str, list[str]] = {}
    for disk in disks:
        by_number.setdefault(_number(disk), []).append(disk)

    def meant(disk: str) -> list[str]:
        return [disk] if disk in disks else by_number.get(_number(disk), [])

    return frozenset((a, b) for upper, lower in stacked for a in meant(upper) for b in meant(lower))


def _number(disk: str) -> str:
    return disk.rpartition("/")[2]

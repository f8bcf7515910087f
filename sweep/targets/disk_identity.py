"""Which disk a device is, whatever the kernel calls it today: names move from one disk to another at a reboot."""

import os
from pathlib import Path

_SYS_DEV_BLOCK = Path("/sys/dev/block")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_OF_DISK = ("wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "md/uuid")
"""What a disk says of itself below /sys/block/DISK: NVMe, SCSI and SATA, virtio, MMC, device mapper, MD."""


def identity_of(device: Path, *, sys_dev_block: Path = _SYS_DEV_BLOCK, boot_id: Path = _BOOT_ID) -> str:
    """Everything that tells this disk, or partition, from others: World Wide Name, serial number, place and size.

    A disk without a name of its own (a loop device, a virtual disk without serial number) is known until the next
    boot only, by the number that the kernel counts disks with (``diskseq``, since Linux 5.15).

    Args:
        device: a block device that is there.

    Returns:
        Words to compare; empty where nothing tells the disk from others.

    Raises:
        OSError: there is no such device.
    """
    number = device.stat().st_rdev
    place = (sys_dev_block / f"{os.major(number)}:{os.minor(number)}").resolve()
    is_partition = (place / "partition").exists()
    disk = place.parent if is_partition else place
    names = [f"{key.rpartition('/')[2]}={text}" for key in _OF_DISK if (text := _text(disk / key))]
    if not names and (sequence := _text(disk / "diskseq")) and (boot := _text(boot_id)):
        names = [f"boot={boot}", f"diskseq={sequence}"]
    if not names:
        return ""
    where = [f"{key}={_text(place / key)}" for key in ("partition", "start") if is_partition]
    return "; ".join([*names, *where, f"sectors={_text(place / 'size')}"])


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""

"""Numbers from which on a record of a trace cannot be what it says: it is damaged, or of another format.

Each reader of a format, the compiled one and the one for any line, holds its lines against the same limits.
"""

LBN_MAX = 1 << 54
"""512-byte blocks: with 2^54 of them a disk has 2^63 bytes, more than an offset of a file or device can name.
Kernels write 2^64 - 1 where an event has no place."""

NBYTES_MAX = 1 << 40
"""Of one access: 1 TiB, 256 times as much as the kernel's block layer can ask for (32 bits of bytes)."""

TIME_NS_MAX = 1 << 62
"""146 years: the difference of two such times still fits into 63 bits."""

TIME_US_MAX = 1 << 52
"""142 years: as nanoseconds it is below ``TIME_NS_MAX``."""

TIME_S_MAX = 1 << 32
"""136 years: as nanoseconds, with any fraction, it is below ``TIME_NS_MAX``."""

MAJOR_MAX = MINOR_MAX = 1 << 20
"""Of a device's number. Linux has 12 bits for major numbers and 20 for minor ones."""

DEVICE_MAX = MAJOR_MAX * MINOR_MAX
"""Of both in one number (``block_layer.device_number``)."""

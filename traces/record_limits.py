"""Limits of the numbers in a record. A record beyond them is damaged, or of another format.

Every reader of a format applies the same limits, both its compiled loop and its code for any line.
"""

LBN_MAX = 1 << 54
"""LBN, in 512-byte blocks. A disk with 2^54 of them has 2^63 bytes, more than an offset of a file or device can
express. Kernels write 2^64 - 1 for an event without a place."""

NBYTES_MAX = 1 << 40
"""Bytes of one access: 1 TiB, 256 times what the kernel's block layer can request (32 bits of bytes)."""

TIME_NS_MAX = 1 << 62
"""146 years. The difference of two such times still fits into 63 bits."""

TIME_US_MAX = 1 << 52
"""142 years. In nanoseconds it is below ``TIME_NS_MAX``."""

TIME_S_MAX = 1 << 32
"""136 years. In nanoseconds, with any fraction, it is below ``TIME_NS_MAX``."""

MAJOR_MAX = MINOR_MAX = 1 << 20
"""Parts of a device number. Linux uses 12 bits for major numbers and 20 for minor numbers."""

DEVICE_MAX = MAJOR_MAX * MINOR_MAX
"""Both parts in one number (``block_layer.device_number``)."""

"""Keys of cephx and the files they lie in."""

import base64
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path


def new_key() -> str:
    """A cephx key: type 1 (AES), creation time, length, 16 random bytes (Ceph's src/auth/Crypto.cc)."""
    return base64.b64encode(struct.pack("<hiih", 1, int(time.time()), 0, 16) + os.urandom(16)).decode()


def keyring_entry(entity: str, key: str, caps: Mapping[str, str]) -> str:
    """One section of a keyring file."""
    lines = [f"[{entity}]", f"\tkey = {key}", *(f'\tcaps {who} = "{what}"' for who, what in caps.items())]
    return "\n".join(lines) + "\n"


def write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner ever can read."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:  # noqa: PTH123
        stream.write(text)

"""The options of storage protocols (scopes ``iscsi``, ``nfs`` and ``swift`` of the partition ``greater``)."""

from collections.abc import Mapping
from dataclasses import dataclass

from cephfit.core.errors import InputError
from cephfit.core.units import parse_nbytes
from cephfit.core.values.configuration import Value, as_yaml

ISCSI = "iscsi"
NFS = "nfs"
SWIFT = "swift"


@dataclass(frozen=True, slots=True)
class ProtocolOption:
    """One option of a protocol.

    Attributes:
        default: its value where a configuration does not set it, on a server of a lab.
        choices: all values as text; empty for a number.
        is_size: the number is one of bytes, also written like 64K.
        least: smallest number.
        is_of_server: the server has it, not the client.
        is_agreed: the client asks for it and the server agrees; a server of a lab is set to agree.
    """

    default: str
    choices: tuple[str, ...] = ()
    is_size: bool = False
    least: int = 1
    is_of_server: bool = False
    is_agreed: bool = False

    def text(self, value: Value) -> str:
        """Return a value in one form: ``65536`` for ``64K``, ``true`` for True.

        Raises:
            InputError: it is not a value of this option.
        """
        text = as_yaml(value)
        if self.choices:
            if text not in self.choices:
                raise InputError(f"{value!r} is not one of {', '.join(self.choices)}")
            return text
        number = parse_nbytes(text) if self.is_size else int(text) if text.isdecimal() else 0
        if number < self.least:
            raise InputError(f"{value!r} is not a whole number of at least {self.least}")
        return str(number)


_BOOLEAN = ("true", "false")
_DIGESTS = ("none", "crc32c")

PROTOCOL_OPTIONS: Mapping[str, Mapping[str, ProtocolOption]] = {
    ISCSI: {
        "header_digest": ProtocolOption("none", _DIGESTS, is_agreed=True),
        "data_digest": ProtocolOption("none", _DIGESTS),
        "sessions": ProtocolOption("1"),
        "queue_depth": ProtocolOption("128", is_of_server=True),
        "immediate_data": ProtocolOption("true", _BOOLEAN, is_of_server=True),
        "initial_r2t": ProtocolOption("true", _BOOLEAN, is_of_server=True),
        "first_burst_length": ProtocolOption("65536", is_size=True, least=512, is_of_server=True),
        "max_burst_length": ProtocolOption("262144", is_size=True, least=512, is_of_server=True),
        "server_cache": ProtocolOption("false", _BOOLEAN, is_of_server=True),
    },
    NFS: {
        "version": ProtocolOption("3", ("3", "4.0", "4.1", "4.2")),
        "sync": ProtocolOption("true", _BOOLEAN, is_of_server=True),
        "rsize": ProtocolOption("1048576", is_size=True, least=1024, is_of_server=True),
        "wsize": ProtocolOption("1048576", is_size=True, least=1024, is_of_server=True),
    },
    SWIFT: {
        "segment_size": ProtocolOption("524288", is_size=True, least=4096),
        "replicas": ProtocolOption("1", ("1", "2", "3")),
    },
}
"""Scope to key to option. The iSCSI defaults are those of tgt 1.0.85 (RFC 7143 names the same), except for
``server_cache``: with direct writes on the server, a write has reached the disk when it returns, as on Ceph."""


def fault_of_protocol_value(scope: str, key: str, value: Value) -> str:
    """Return what is wrong with a value of a known key; empty if nothing."""
    try:
        PROTOCOL_OPTIONS[scope][key].text(value)
    except InputError as error:
        return f"{key}: {error.what}"
    return ""

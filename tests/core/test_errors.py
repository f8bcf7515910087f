"""The texts of errors."""

from cephfit.core.errors import HostError


def test_the_remedy_is_separated_where_an_error_is_one_line_of_a_table() -> None:
    error = HostError("Ceph 18.2.7 has no FileStore", where="objectstore", remedy="use bluestore")
    assert error.on_one_line == "objectstore: Ceph 18.2.7 has no FileStore; use bluestore"
    assert HostError("it failed").on_one_line == "it failed"

"""Two spellings of one value are one value, the way Ceph reads them."""

import pytest

from cephfit.ceph.options.option import same_value
from cephfit.core.values.configuration import Value


@pytest.mark.parametrize(
    ("option_type", "wanted", "found"),
    [
        ("size", "512K", "524288"),
        ("size", "1G", "1073741824"),
        ("size", "4KiB", "4096"),
        ("size", 0, "0"),
        ("bool", False, "false"),
        ("bool", "yes", "true"),
        ("bool", 1, "true"),
        ("float", 0.85, "0.850000"),
        ("float", "1e-3", "0.001000"),
        ("uint", "8K", "8000"),
        ("int", 4, "4"),
        ("secs", "5m", "300"),
        ("str", 20, "20/20"),
        ("str", "1/5", "1/5"),
        ("str", "wpq", "wpq"),
    ],
)
def test_the_same(option_type: str, wanted: Value, found: str) -> None:
    assert same_value(option_type, wanted, found)


@pytest.mark.parametrize(
    ("option_type", "wanted", "found"),
    [
        ("size", "512K", "512000"),
        ("bool", True, "false"),
        ("float", 0.85, "0.86"),
        ("uint", "many", "1"),
        ("int", 1, "10"),
        ("str", "wpq", "mclock_scheduler"),
        ("str", "1/5", "1/10"),
    ],
)
def test_not_the_same(option_type: str, wanted: Value, found: str) -> None:
    assert not same_value(option_type, wanted, found)

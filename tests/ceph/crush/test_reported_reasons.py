"""The reason that Ceph's map programs report, among what else they print."""

import pytest

from cephfit.ceph.crush.live_map import _first_words

WARNING = "WARNING: min_size is no longer supported, ignoring"
"""Since 18.2, for each rule of an older map."""


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        (f"{WARNING}\n{WARNING}\nrule 0 already exists\n", "rule 0 already exists"),
        ("rule 0 already exists\nin file included\n", "rule 0 already exists"),
        (f"{WARNING}\n", WARNING),
        ("", "ended with 1"),
    ],
)
def test_a_warning_is_the_reason_only_if_nothing_else_was_said(reported: str, reason: str) -> None:
    assert _first_words(reported, 1) == reason

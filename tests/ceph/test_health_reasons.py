"""What of `ceph status` makes a sample untrustworthy."""

import copy
from typing import Any

import pytest

from cephfit.sweep.validity.ceph_health import CephHealth, reasons_against

CALM: dict[str, Any] = {
    "health": {"status": "HEALTH_OK", "checks": {}},
    "osdmap": {"epoch": 32, "num_osds": 4, "num_up_osds": 4, "num_in_osds": 4, "num_remapped_pgs": 0},
    "pgmap": {"pgs_by_state": [{"state_name": "active+clean", "count": 33}], "num_pgs": 33},
    "mgrmap": {"available": True},
}


def with_check(name: str, message: str) -> dict[str, Any]:
    status = copy.deepcopy(CALM)
    status["health"] = {"status": "HEALTH_WARN", "checks": {name: {"summary": {"message": message}}}}
    return status


def test_a_calm_cluster_is_trusted() -> None:
    assert reasons_against(CALM) == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("POOL_NO_REDUNDANCY", "1 pool(s) have no replicas configured"),
        ("RECENT_CRASH", "1 daemons have recently crashed"),
        ("OSDMAP_FLAGS", "noscrub,nodeep-scrub flag(s) set"),
    ],
)
def test_warnings_that_do_not_matter_for_performance(name: str, message: str) -> None:
    assert reasons_against(with_check(name, message)) == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OSD_DOWN", "1 osds down"),
        ("OSD_NEARFULL", "1 nearfull osd(s)"),
        ("OSDMAP_FLAGS", "pauserd,pausewr,noscrub flag(s) set"),
        ("A_CHECK_OF_THE_FUTURE", "something new"),
    ],
)
def test_all_others_are_reasons_in_cephs_words(name: str, message: str) -> None:
    assert reasons_against(with_check(name, message)) == (f"{name}: {message}",)


@pytest.mark.parametrize(
    "state",
    ["active+clean+scrubbing+deep", "active+recovering", "peering", "active+remapped+backfilling", "unknown"],
)
def test_pgs_in_any_other_state_than_active_clean(state: str) -> None:
    status = copy.deepcopy(CALM)
    status["pgmap"]["pgs_by_state"] = [
        {"state_name": "active+clean", "count": 31},
        {"state_name": state, "count": 2},
    ]
    assert reasons_against(status) == (f"2 PGs {state}",)


def test_an_osd_that_is_out() -> None:
    status = copy.deepcopy(CALM)
    status["osdmap"]["num_in_osds"] = 3
    assert reasons_against(status) == ("4 OSDs: 4 up, 3 in",)


class Scripted:
    """A cluster that says what the test wants next."""

    def __init__(self, *num_pgs: int) -> None:
        self._answers = iter(num_pgs)

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        assert (prefix, arguments) == ("status", {})
        status = copy.deepcopy(CALM)
        status["pgmap"]["num_pgs"] = next(self._answers)
        return status

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        raise AssertionError("health asks the monitors only")

    def close(self) -> None:
        pass


def test_a_changing_pg_count_is_a_reason_once() -> None:
    health = CephHealth(Scripted(33, 64, 64))
    assert health.check().ok
    assert health.check().reasons == ("the number of PGs changed from 33 to 64",)
    assert health.check().ok


def test_a_pool_of_our_own_may_change_it() -> None:
    health = CephHealth(Scripted(33, 65))
    assert health.check().ok
    health.expect_new_pools()
    assert health.check().ok

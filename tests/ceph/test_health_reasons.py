"""What of `ceph status` makes a sample untrustworthy."""

import copy
from typing import Any

import pytest

from cephfit.ceph.ceph_health import CephHealth, reasons_against

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


def test_osds_that_are_out_and_down_from_the_beginning_are_no_reason_but_one_that_is_in_is() -> None:
    """A dead disk that waits for its replacement: Ceph reports HEALTH_OK."""
    status = copy.deepcopy(CALM)
    status["osdmap"] |= {"num_in_osds": 3, "num_up_osds": 3}
    assert reasons_against(status) == ()
    status["osdmap"] |= {"num_up_osds": 2}
    assert reasons_against(status) == ("4 OSDs: 2 up, 3 in",)


@pytest.mark.parametrize(
    "name", ["POOL_PG_NUM_NOT_POWER_OF_TWO", "LARGE_OMAP_OBJECTS", "CEPHADM_STRAY_DAEMON", "DEVICE_HEALTH"]
)
def test_everyday_checks_do_not_refuse_a_cluster(name: str) -> None:
    assert reasons_against(with_check(name, "2 of something")) == ()


@pytest.mark.parametrize(
    ("name", "is_heard"),
    [
        ("MON_CLOCK_SKEW", False),
        ("A_CHECK_OF_THE_FUTURE", False),
        ("SLOW_OPS", True),
        ("OSD_SLOW_PING_TIME_FRONT", True),
        ("PG_DEGRADED", True),
        ("OSD_DOWN", True),
    ],
)
def test_what_people_muted_is_theirs_but_for_what_slows_the_cluster_down_now(name: str, is_heard: bool) -> None:
    status = with_check(name, "something")
    status["health"]["checks"][name]["muted"] = True
    assert reasons_against(status) == ((f"{name}: something",) if is_heard else ())
    observed = CephHealth(Answers(status)).check().observed
    assert observed["checks"] == {name: "something"}, "it is kept with the figures"


class Answers:
    """A cluster with one status after the other, the last for ever."""

    def __init__(self, *statuses: dict[str, Any]) -> None:
        self._statuses = list(statuses)

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        assert (prefix, arguments) == ("status", {})
        return self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        raise AssertionError("health asks the monitors only")

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        raise AssertionError("health asks the monitors only")

    def close(self) -> None:
        pass


def test_an_osd_that_goes_out_later_makes_it_another_cluster() -> None:
    smaller = copy.deepcopy(CALM)
    smaller["osdmap"] |= {"num_in_osds": 3, "num_up_osds": 3}
    health = CephHealth(Answers(CALM, smaller, smaller, CALM))
    assert health.check().ok
    for _ in range(2):
        assert health.check().reasons == ("3 OSDs are in; 4 were in at the beginning",)
    assert health.check().ok


def test_an_osd_that_comes_back_while_one_waits_for_health_is_no_change() -> None:
    ill = copy.deepcopy(CALM)
    ill["osdmap"] |= {"num_in_osds": 3, "num_up_osds": 2}
    health = CephHealth(Answers(ill, CALM))
    assert not health.check().ok
    assert health.check().ok


class Scripted:
    """A cluster with the answers of the test."""

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

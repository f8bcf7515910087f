"""Clocks of guests against ours: what looks at a guest's console tell, and what makes a straggler."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.protocols import Client
from cephfit.measure.fio.fio_remote import BY_CLIENTS, why_not_together
from cephfit.measure.fio.fio_servers import ClockWatch, Offset, between, measured_parts, together, with_log

delays = st.floats(0.001, 3)


@given(
    ahead=st.floats(-3600, 3600),
    ticks=st.lists(delays, min_size=4, max_size=30),
    looks=st.lists(st.tuples(delays, delays), min_size=2, max_size=20),
)
def test_the_bounds_hold_the_true_offset_however_slow_looks_and_ticks_are(
    ahead: float, ticks: list[float], looks: list[tuple[float, float]]
) -> None:
    shown = [sum(ticks[: n + 1]) for n in range(len(ticks))]
    watch, now = ClockWatch(), 0.0
    for pause, answering in looks:
        asked = now + pause
        now = asked + answering
        # The console is read at some moment before the answer is here.
        read = asked + answering / 2
        watch.see([at + ahead for at in shown if at <= read], asked=asked, answered=now)
    if watch.offset is not None:
        assert watch.offset.low - 1e-6 <= ahead <= watch.offset.high + 1e-6


def test_a_clock_that_was_set_counts_as_it_is_now() -> None:
    assert Offset(-0.1, 0.1).narrowed(Offset(0.05, 0.3)) == Offset(0.05, 0.1)
    assert Offset(-0.1, 0.1).narrowed(Offset(7.9, 8.1)) == Offset(7.9, 8.1)


def test_readings_that_were_there_at_the_first_look_tell_nothing() -> None:
    watch = ClockWatch()
    watch.see([100.0], asked=10.0, answered=10.2)
    assert watch.offset is None
    watch.see([100.0, 101.0], asked=11.0, answered=11.2)
    assert watch.offset == between(101.0, 10.0, 11.2)
    assert watch.first == 100.0


def test_guests_that_began_together_by_wrong_clocks_are_told_from_those_that_did_not() -> None:
    """One clock is 5 s ahead: equal readings are 5 s apart, readings 5 s apart are equal."""
    offsets = {"c0": Offset(-0.1, 0.1), "c1": Offset(4.9, 5.1)}
    apart = together({"c0": 50.0, "c1": 50.0}, {"c0": 60.0, "c1": 60.0}, offsets, unknown=1.0)
    assert apart["start_skew_seconds"] == pytest.approx(5.0)
    assert (apart["start_skew_at_least_seconds"], apart["start_skew_at_most_seconds"]) == (4.8, 5.2)
    assert "the last began 5.00 s after the first" in why_not_together(apart, 10.0)
    alike = together({"c0": 50.0, "c1": 55.0}, {"c0": 60.0, "c1": 65.0}, offsets, unknown=1.0)
    assert why_not_together(alike, 10.0) == ""


def test_an_unknown_clock_may_be_off_by_what_is_said() -> None:
    found = together({"c0": 1.0, "c1": 1.0}, {"c0": 2.0, "c1": 2.0}, {"c0": None, "c1": None}, unknown=1.0)
    assert found["start_skew_at_most_seconds"] == 2.0
    assert found["clocks"]["c0"] == {"ahead_seconds": 0.0, "uncertainty_seconds": 1.0}


def test_what_servers_say_counts_only_beyond_what_they_may_be_wrong_by() -> None:
    ours = {"start_skew_seconds": 0.2, "end_skew_seconds": 0.2}
    for at_least, is_late in ((0.9, False), (1.1, True)):
        said = {**ours, BY_CLIENTS: {"start_skew_at_least_seconds": at_least}}
        assert bool(why_not_together(said, 10.0)) == is_late


def test_a_servers_log_tells_when_its_measured_part_began_and_ended(tmp_path: Path) -> None:
    """As fio 3.33 brings it back: moments in milliseconds at the end of each half second."""
    client = Client("c0", {"filename": "/dev/vdb"}, 1 << 20, address="10.77.1.81,8765")
    log = tmp_path / "cephfit-c0_bw.1.log.10.77.1.81"
    log.write_text("1795288078624, 75110, 0, 0, 0\n1795288079124, 73016, 0, 0, 0\n1795288081124, 78124, 0, 0, 0\n")
    assert measured_parts(tmp_path, [client]) == {"c0": (1795288078.124, 1795288081.124)}
    assert measured_parts(tmp_path / "elsewhere", [client]) == {}
    job = with_log("[c0]\nrw=read\n", client)
    assert job.splitlines()[2:] == ["write_bw_log=cephfit-c0", "log_avg_msec=500", "log_unix_epoch=1"]


def test_a_server_at_a_socket_has_our_clock() -> None:
    client = Client("c0", {}, 1, address="sock:/run/fio")
    assert with_log("[c0]\n", client) == "[c0]\n"

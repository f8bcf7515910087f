"""What changed between releases, against facts of Ceph's release notes."""

import pytest

from cephfit.ceph.options.option import Option
from cephfit.ceph.options.option_archive import Change, KnownOptions, changes_between, releases_of
from cephfit.core.errors import InputError


def option(name: str, kind: str, default: object) -> Option:
    return Option(name=name, type=kind, default=default, flags=(), services=(), can_update_at_runtime=True)


def by_name(text: str) -> dict[str, Change]:
    return {change.name: change for change in changes_between(*releases_of(text))}


def test_from_pacific_to_reef_the_scheduler_is_mclock_with_another_default_profile() -> None:
    changes = by_name("pacific..reef")
    scheduler, profile = changes["osd_op_queue"], changes["osd_mclock_profile"]
    assert (scheduler.kind, scheduler.before, scheduler.after) == ("default", "wpq", "mclock_scheduler")
    assert (profile.before, profile.after) == ("high_client_ops", "balanced")


def test_a_replaced_option_names_its_replacement() -> None:
    change = by_name("16.2..18.2")["osd_mclock_cost_per_byte_usec_hdd"]
    assert (change.kind, change.instead) == ("replaced", ("osd_mclock_max_sequential_bandwidth_hdd",))


def test_tentacle_adds_the_optimisations_of_erasure_codes() -> None:
    assert by_name("reef..tentacle")["osd_pool_default_flag_ec_optimizations"].kind == "added"
    assert "osd_op_queue" not in by_name("reef..tentacle")


def test_another_spelling_of_a_default_is_no_change() -> None:
    before = KnownOptions(
        "1", (option("a", "size", "2097152"), option("b", "uint", 0), option("gone", "int", 1)), ""
    )
    after = KnownOptions("2", (option("a", "size", "2M"), option("b", "uint", "0"), option("new", "int", 3)), "")
    assert [(c.kind, c.name, c.before, c.after) for c in changes_between(before, after)] == [
        ("removed", "gone", 1, None),
        ("added", "new", None, 3),
    ]


def test_a_pair_in_the_wrong_order_is_refused_with_the_right_one() -> None:
    with pytest.raises(InputError, match="newer than pacific") as refused:
        releases_of("reef..pacific")
    assert refused.value.remedy.startswith("write pacific..reef")
    assert not changes_between(*releases_of("reef..18.2"))


@pytest.mark.parametrize("text", ["pacific", "..reef", "pacific..", "pacific..firefly"])
def test_a_pair_of_releases_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        releases_of(text)


def test_an_unknown_release_of_a_pair_is_refused_with_the_pair() -> None:
    with pytest.raises(InputError, match="Ceph squid are unknown") as refused:
        releases_of("pacific..squid")
    assert refused.value.where == "pacific..squid"

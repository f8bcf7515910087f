"""Which section of the config store speaks to which daemon, and which of several wins."""

from cephfit.sweep.admin.daemons import Daemon, concerned, strongest

HDD = Daemon("osd", "0", "hdd", {"host": "host0", "root": "default"})
SSD = Daemon("osd", "1", "ssd", {"host": "host1", "root": "default"})
MON = Daemon("mon", "a")


def test_a_mask_by_class_speaks_to_its_class() -> None:
    assert concerned("osd/class:hdd", [HDD, SSD, MON]) == (HDD,)


def test_a_mask_by_place_speaks_to_the_osds_there() -> None:
    assert concerned("osd/host:host1", [HDD, SSD, MON]) == (SSD,)


def test_global_speaks_to_all() -> None:
    assert concerned("global", [HDD, SSD, MON]) == (HDD, SSD, MON)


def test_the_more_special_section_wins() -> None:
    sections = ["global", "osd", "osd/class:hdd", "osd.1"]
    assert strongest(sections, HDD) == "osd/class:hdd"
    assert strongest(sections, SSD) == "osd.1"
    assert strongest(sections, MON) == "global"
    assert strongest(["mon"], HDD) is None

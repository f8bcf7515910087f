"""Parts appended to CRUSH maps, small, random and real ones: every other line and every weight stays."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from crush_maps import cluster_text, real_map, two_classes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cephfit.ceph.crush import live_map, map_text
from cephfit.ceph.crush.data_placement import Devices, Placement
from cephfit.ceph.crush.live_map import LiveMap, MapRefusedError
from cephfit.ceph.crush.map_parts import Parts, render_parts
from cephfit.ceph.crush.map_proposal import appended, differences, try_parts, without_rule
from cephfit.core.errors import InputError

pytestmark = pytest.mark.skipif(shutil.which("crushtool") is None, reason="needs crushtool (package ceph-base)")

REAL = (
    "five-devices.crushmap", "reclassify-a.crushmap", "simple.template.multitree", "straw2.txt",
    "test-map-a.crushmap", "test-map-indep.crushmap",
)  # fmt: skip
BROKEN = {
    "missing-bucket.crushmap.txt": "item 'root-404' not defined",
    "check-overlapped-rules.crushmap.txt": "rule 0 already exists",
}


def in_three_digits(line: str) -> str:
    """A bucket's weight as 16.2 prints it; 18.2 prints five digits."""
    return re.sub(r"(?<=\t# weight )[\d.]+$", lambda weight: f"{float(weight[0]):.3f}", line)


def added(live: LiveMap, placement: Placement) -> tuple[LiveMap, Parts, Sequence[str]]:
    parts = render_parts(live, placement, "fast")
    changed = appended(live, parts)
    assert differences(live, changed) == ()
    lines = map_text.added_lines(live.text, changed.text)
    assert lines is not None
    return changed, parts, lines


def test_a_pool_on_a_device_class_needs_one_rule_and_nothing_else() -> None:
    live = two_classes()
    _, _, lines = added(live, Placement(Devices(device_class="ssd")))
    sizes = ["\tmin_size 1", "\tmax_size 10"] if map_text.has_sizes(live.text) else []
    assert lines == [
        "rule fast {", "\tid 1", "\ttype replicated", *sizes,
        "\tstep take default class ssd", "\tstep chooseleaf firstn 0 type host", "\tstep emit", "}",
    ]  # fmt: skip


def test_three_decimals_would_change_the_weights_and_so_move_data() -> None:
    """As crushtool writes them before Quincy; with its five decimals since then, this map stays the same."""
    live = two_classes()
    rounded = re.sub(r"(?<=weight )\d+\.\d+", lambda found: f"{float(found[0]):.3f}", live.text)
    assert LiveMap.from_text(rounded).digest != live.digest, "why weights are written out in full"
    assert LiveMap.from_text(map_text.exact(rounded, live.document)).digest == live.digest


def test_before_device_classes_a_class_becomes_a_tree_of_its_own_in_the_algorithm_of_the_map() -> None:
    hosts = {name: {2 * n: 1.0, 2 * n + 1: 1.0} for n, name in enumerate("abc")}
    live = LiveMap.from_text(cluster_text(hosts, alg="straw"))
    placement = Placement(Devices(device_class="ssd"), classes={"ssd": (1, 3, 5)})
    changed, parts, lines = added(live, placement)
    assert changed.osds_under("fast-devices") == {1: 65536, 3: 65536, 5: 65536}
    assert {b.alg for b in changed.buckets.values()} == {"straw"}
    assert sum(line.startswith("host fast-") for line in lines) == 3
    assert "\tstep take fast-devices" in lines
    assert not try_parts(changed, parts, size=3, failure_domain="host").n_bad
    with pytest.raises(InputError, match="no device classes") as caught:
        render_parts(live, Placement(Devices(device_class="ssd")), "fast")
    assert "classes: {ssd: [0, 1, ...]}" in caught.value.remedy


def test_rules_are_written_as_the_releases_text_has_them() -> None:
    """Before Luminous a rule's number is its ruleset; later releases' rules have no sizes."""
    live = two_classes()
    old, new = two_classes(), two_classes()
    new.text = live.text.replace("\tmin_size 1\n\tmax_size 10\n", "")
    old.text = new.text.replace(
        "\tid 0\n\ttype replicated\n", "\truleset 0\n\ttype replicated\n\tmin_size 1\n\tmax_size 10\n"
    )
    rule = {
        name: render_parts(one, Placement(), "fast").parts[-1].text for name, one in (("old", old), ("new", new))
    }
    assert "\truleset 1\n\ttype replicated\n\tmin_size 1" in rule["old"]
    assert "\tid 1\n\ttype replicated\n\tstep take" in rule["new"]
    assert appended(old, render_parts(old, Placement(), "fast")).rules == {"replicated_rule": 0, "fast": 1}


def test_named_hosts_keep_their_osds_in_a_root_of_the_pools_own() -> None:
    live = two_classes()
    changed, parts, _ = added(live, Placement(Devices(hosts=("a", "c"), device_class="ssd")))
    assert set(changed.osds_under("fast-devices")) == {0, 1, 4, 5}
    trial = try_parts(changed, parts, size=2, failure_domain="host", pool=7, pg_num=64)
    assert {osd for osds in trial.pgs.values() for osd in osds} == {1, 5}


def test_listed_osds_get_hosts_of_their_own() -> None:
    live = two_classes()
    changed, parts, _ = added(live, Placement(Devices(osds=(0, 3, 4))))
    assert changed.osds_under("fast-devices") == {o: live.osds_under("default")[o] for o in (0, 3, 4)}
    assert any("two trees" in warning and "pg_autoscaler" in warning for warning in parts.warnings)


def test_roots_that_share_osds_are_reported_since_the_autoscaler_ignores_their_pools() -> None:
    live = two_classes()
    (of_hosts,) = render_parts(live, Placement(Devices(hosts=("a", "b"))), "near").warnings
    assert "two roots" in of_hosts
    assert "pg_autoscaler" in of_hosts
    (of_class,) = render_parts(live, Placement(Devices(device_class="ssd")), "fast").warnings
    assert "shares OSDs with rule replicated_rule; the pg_autoscaler ignores" in of_class
    assert not render_parts(live, Placement(), "whole").warnings, "the same root as the rule that is there"

    by_class = LiveMap.from_text(live.text.replace("step take default", "step take default class hdd"))
    assert not render_parts(by_class, Placement(Devices(device_class="ssd")), "fast").warnings
    assert not render_parts(by_class, Placement(Devices(device_class="hdd")), "slow").warnings
    assert render_parts(by_class, Placement(), "whole").warnings


def test_primaries_on_one_class_and_replicas_on_another_share_hosts_unless_hosts_are_named() -> None:
    live = two_classes()
    changed, parts, _ = added(live, Placement(Devices(device_class="hdd"), primary=Devices(device_class="ssd")))
    trial = try_parts(changed, parts, size=2, failure_domain="host")
    assert trial.n_bad == 0
    assert 0.2 < trial.n_shared / trial.n_inputs < 0.5, "one of three hosts is met twice"
    (fault,) = trial.faults("host")
    assert "two copies into one host" in fault

    apart = Placement(
        Devices(device_class="hdd", hosts=("b", "c")), primary=Devices(device_class="ssd", hosts=("a",))
    )
    changed, parts, _ = added(live, apart)
    trial = try_parts(changed, parts, size=2, failure_domain="host", pool=1, pg_num=32)
    assert trial.faults("host") == ()
    assert {osds[0] for osds in trial.pgs.values()} == {1}
    assert {osds[1] for osds in trial.pgs.values()} == {2, 4}


def test_chunks_of_an_erasure_code_find_their_places_or_the_rule_is_refused() -> None:
    live = two_classes()
    changed, parts, lines = added(live, Placement(Devices(device_class="hdd"), failure_domain="osd", erasure=True))
    assert "\tstep choose indep 0 type osd" in lines
    assert "\tstep set_choose_tries 100" in lines
    assert try_parts(changed, parts, size=3, failure_domain="osd").faults("osd") == ()
    (fault,) = try_parts(changed, parts, size=4, failure_domain="osd").faults("osd")
    assert fault == "rule fast finds fewer than 4 OSDs for 4096 of 4096 inputs"


def test_what_the_map_does_not_have_is_named_with_the_nearest_word() -> None:
    live = two_classes()
    for placement, words in (
        (Placement(Devices(device_class="sdd")), "did you mean 'ssd'"),
        (Placement(Devices(hosts=("aa",))), "choose from|did you mean"),
        (Placement(Devices(osds=(9,))), "osd.5"),
        (Placement(failure_domain="hots"), "did you mean 'host'"),
        (Placement(Devices(root="defualt")), "did you mean 'default'"),
    ):
        with pytest.raises(InputError) as caught:
            render_parts(live, placement, "fast")
        assert any(word.strip() in caught.value.remedy for word in words.split("|")), caught.value


def two_roots(suffix: str) -> LiveMap:
    """Three hosts with HDDs under ``default``, and their SSDs in buckets of their own under ``flash``."""
    text = "tunable chooseleaf_stable 1\n"
    text += "".join(f"device {n} osd.{n} class {'hdd' if n < 3 else 'ssd'}\n" for n in range(6))
    text += "type 0 osd\ntype 1 host\ntype 10 root\n"
    names = [*"abc", *(f"{name}{suffix}" for name in "abc")]
    for n, name in enumerate(names):
        text += f"host {name} {{\n\tid -{n + 3}\n\talg straw2\n\thash 0\n\titem osd.{n} weight 1.000\n}}\n"
    for n, (root, hosts) in enumerate((("default", names[:3]), ("flash", names[3:]))):
        items = "".join(f"\titem {host} weight 1.000\n" for host in hosts)
        text += f"root {root} {{\n\tid -{n + 1}\n\talg straw2\n\thash 0\n{items}}}\n"
    return LiveMap.from_text(text)


def test_a_class_under_another_root_names_that_root() -> None:
    with pytest.raises(InputError, match="no OSD of class 'ssd' is under default") as caught:
        render_parts(two_roots("-SSD"), Placement(Devices(device_class="ssd")), "pool")
    assert caught.value.remedy == "it is under flash: add `root: flash`"
    added(two_roots("-SSD"), Placement(Devices(root="flash", device_class="ssd")))


@pytest.mark.parametrize(("suffix", "warns"), [("-SSD", True), ("_nvme", True), ("-x", False)])
def test_hosts_named_by_class_may_be_one_machine(suffix: str, warns: bool) -> None:
    live = two_roots(suffix)
    mixed = Placement(Devices(root="default"), primary=Devices(root="flash"))
    warnings = render_parts(live, mixed, "pool").warnings
    assert any(f"a and a{suffix}" in w and "may be one machine" in w for w in warnings) == warns
    for placement in (Placement(Devices(root="flash")), replace(mixed, failure_domain="osd")):
        assert not any("one machine" in w for w in render_parts(live, placement, "pool").warnings)


def built(tmp_path: Path, n_osds: int, weights: dict[int, float], device_class: str = "") -> LiveMap:
    """Return a map built by crushtool, with the weights of some OSDs changed in the compiled map."""
    path = tmp_path / "map"
    layers = ["host", "straw2", "10", "rack", "straw2", "20", "root", "straw2", "0"]
    argv = ["crushtool", "-o", str(path), "--build", "--num_osds", str(n_osds), *layers]
    subprocess.run(argv, check=True, capture_output=True)
    if device_class:
        text = re.sub(
            r"^(device .*)$", rf"\1 class {device_class}", live_map.decompile(path.read_bytes()), flags=re.M
        )
        steps = f"\tstep take root class {device_class}\n\tstep chooseleaf firstn 0 type host\n\tstep emit\n"
        text += f"rule of_class {{\n\tid 9\n\ttype replicated\n\tmin_size 1\n\tmax_size 10\n{steps}}}\n"
        path.write_bytes(live_map.compile_map(text))
    for osd, weight in weights.items():
        argv = ["crushtool", "-i", str(path), "--reweight-item", f"osd.{osd}", str(weight), "-o", str(path)]
        subprocess.run(argv, check=True, capture_output=True)
    return LiveMap(path.read_bytes())


@pytest.mark.parametrize("device_class", ["", "hdd"])
def test_racks_above_256_tib_are_compared_as_crushtool_rounds_them(tmp_path: Path, device_class: str) -> None:
    live = built(tmp_path, 800, dict.fromkeys(range(31), 14.55269), device_class)
    assert any("~hdd" in b["name"] for b in live.document["buckets"]) == bool(device_class)
    heavy = [item["weight"] for b in live.document["buckets"] for item in b["items"] if item["weight"] > 1 << 24]
    again = LiveMap.from_text(map_text.exact(live.text, live.document))
    kept = [item["weight"] for b in again.document["buckets"] for item in b["items"] if item["weight"] > 1 << 24]
    assert heavy and heavy != kept, "crushtool rounds weights that a 32-bit float cannot hold"
    if not device_class:
        assert [map_text.parsed(weight) for weight in heavy] == kept
    changed, _, lines = added(live, Placement(Devices(root="root", device_class=device_class)))
    assert lines[0] == "rule fast {"
    rule = max(live.rules.values())
    before, after = (live_map.try_rule(m.binary, rule, size=3, n_inputs=2048) for m in (live, changed))
    assert before == after, "nothing moves"


def test_another_weight_is_still_a_difference(tmp_path: Path) -> None:
    live = built(tmp_path, 800, dict.fromkeys(range(31), 14.55269))
    other = built(tmp_path, 800, dict.fromkeys(range(32), 14.55269))
    assert "bucket root has changed" in differences(live, other)


def test_weight_sets_of_the_balancer_keep_every_digit_and_go_with_a_bucket_that_is_taken_out() -> None:
    live = two_classes()
    text = live.text.replace("# end crush map", "") + (
        "choose_args 18446744073709551615 {\n  {\n    bucket_id -2\n    weight_set [\n"
        "      [ 1.00137 0.33370 ]\n    ]\n  }\n}\n"
    )
    live = LiveMap.from_text(text)
    assert live.document["choose_args"]
    changed, _, _ = added(live, Placement(Devices(osds=(0, 3))))
    assert changed.document["choose_args"] == live.document["choose_args"]
    assert without_rule(changed, "fast").digest == live.digest


@pytest.mark.parametrize("name", REAL)
def test_real_maps_come_back_line_for_line(name: str) -> None:
    live = real_map(name)
    root = live.default_root or live.roots[0]
    osds = tuple(sorted(live.osds_under(root)))[:6]
    domain = next(t for t in ("host", "domain", live.osd_type) if t in live.types)
    placements = (
        Placement(Devices(root=root), failure_domain=live.osd_type),
        Placement(Devices(root=root), failure_domain=live.osd_type, erasure=True),
        Placement(Devices(osds=osds), failure_domain=domain),
        Placement(Devices(device_class="ssd"), failure_domain=live.osd_type, classes={"ssd": osds}),
    )
    for placement in placements:
        changed, parts, lines = added(live, placement)
        again = LiveMap(changed.binary)
        assert again.text == changed.text
        own = [in_three_digits(line) for line in lines if not line.startswith("device ")]
        expected = [line for part in parts.parts for line in part.text.splitlines() if "item " not in line]
        assert [line for line in own if "item " not in line and "class " not in line] == expected
        back = without_rule(changed, "fast")
        assert differences(live, back) == ()
        assert [line for line in map_text.added_lines(live.text, back.text) or () if "device" not in line] == []


@pytest.mark.parametrize("name", BROKEN)
def test_maps_that_cannot_be_are_refused_in_crushtools_words(name: str) -> None:
    with pytest.raises(MapRefusedError, match=BROKEN[name]):
        real_map(name)


weights = st.integers(min_value=1, max_value=100 * 0x10000).map(lambda n: n / 0x10000)
"""Above 100, crushtool refuses a device: no disk has so many TiB."""


@st.composite
def clusters(draw: st.DrawFn) -> LiveMap:
    n_hosts = draw(st.integers(1, 4))
    hosts = {}
    classes = {}
    osd = 0
    for host in range(n_hosts):
        inner = {}
        for _ in range(draw(st.integers(1, 4))):
            inner[osd] = draw(weights)
            classes[osd] = draw(st.sampled_from(("hdd", "ssd")))
            osd += 1
        hosts[f"host-{host}"] = inner
    has_classes = draw(st.booleans())
    alg = draw(st.sampled_from(("straw", "straw2", "list")))
    return LiveMap.from_text(cluster_text(hosts, classes if has_classes else {}, alg=alg))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.data())
def test_whatever_the_map_parts_can_be_put_in_and_taken_out_again(live: LiveMap, data: st.DataObject) -> None:
    osds = sorted(live.osds_under("default"))
    some = tuple(sorted(data.draw(st.sets(st.sampled_from(osds), min_size=1))))
    domain = data.draw(st.sampled_from(("osd", "host")))
    erasure = data.draw(st.booleans())
    changed, _, lines = added(live, Placement(Devices(osds=some), failure_domain=domain, erasure=erasure))
    assert len(lines) >= 8
    assert changed.osds_under("fast-devices") == {osd: live.osds_under("default")[osd] for osd in some}
    reached, _ = live_map.try_rule(changed.binary, changed.rules["fast"], size=len(osds), n_inputs=200)
    assert {o for osds in reached.values() for o in osds if o != live_map.NOWHERE} <= set(some)
    assert without_rule(changed, "fast").digest == live.digest

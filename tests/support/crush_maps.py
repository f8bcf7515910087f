"""CRUSH maps for tests: small clusters as text, and the folder of real maps by others."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from cephfit.ceph.crush.live_map import LiveMap

NEW_TUNABLES = """\
tunable choose_local_tries 0
tunable choose_local_fallback_tries 0
tunable choose_total_tries 50
tunable chooseleaf_descend_once 1
tunable chooseleaf_vary_r 1
tunable chooseleaf_stable 1
tunable straw_calc_version 1
tunable allowed_bucket_algs 54
"""


def cluster_text(
    hosts: Mapping[str, Mapping[int, float]], classes: Mapping[int, str] | None = None, *, alg: str = "straw2"
) -> str:
    """A map of hosts with OSDs and their weights under one root, with one rule."""
    classes = classes or {}
    osds = sorted(osd for inner in hosts.values() for osd in inner)
    lines = [NEW_TUNABLES if classes else ""]
    lines += [f"device {osd} osd.{osd}" + (f" class {classes[osd]}" if osd in classes else "") for osd in osds]
    lines += ["type 0 osd", "type 1 host", "type 2 rack", "type 10 root"]
    for number, (host, inner) in enumerate(hosts.items()):
        items = [f"\titem osd.{osd} weight {weight:.5f}" for osd, weight in inner.items()]
        lines += [f"host {host} {{", f"\tid {-2 - number}", f"\talg {alg}", "\thash 0", *items, "}"]
    items = [f"\titem {host} weight {sum(inner.values()):.5f}" for host, inner in hosts.items()]
    lines += ["root default {", "\tid -1", f"\talg {alg}", "\thash 0", *items, "}"]
    lines += ["rule replicated_rule {", "\tid 0", "\ttype replicated", "\tmin_size 1", "\tmax_size 10"]
    lines += ["\tstep take default", "\tstep chooseleaf firstn 0 type host", "\tstep emit", "}"]
    return "\n".join(lines) + "\n"


def two_classes(n_hosts: int = 3) -> LiveMap:
    """Hosts a, b ... with an hdd (OSDs 0, 2 ...) and an ssd (1, 3 ...) each; a text cannot hold their weights."""
    hosts = {"abcdefgh"[n]: {2 * n: 1.81940, 2 * n + 1: 0.43660} for n in range(n_hosts)}
    classes = {osd: "ssd" if osd % 2 else "hdd" for inner in hosts.values() for osd in inner}
    return LiveMap.from_text(cluster_text(hosts, classes))


def real_map(name: str) -> LiveMap:
    """One of the maps in the folder of samples, compiled or as text."""
    root = os.environ.get("CEPHFIT_SAMPLES")
    folder = Path(root) / "crush" if root else None
    if folder is None or not folder.is_dir():
        pytest.skip("CEPHFIT_SAMPLES does not name the folder of real CRUSH maps")
    raw = (folder / name).read_bytes()
    return LiveMap.from_text(raw.decode()) if raw[:1] in (b"#", b"d") else LiveMap(raw)

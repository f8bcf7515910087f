"""Settings around Ceph in sweep files."""

import pytest

from cephfit.core.errors import InputError
from cephfit.sweep.declaration.sweep_file import parse_sweep

SWEEP = """\
schema_version: 1
name: try
configurations:
  x:
    greater: {GREATER}
measurement: {sizes: [4K], patterns: [read], clients: 1, volume_size: 64M, repeats: 1, run_seconds: 1,
  ramp_seconds: 0, ioengine: psync, iodepth: 1, direct: true, cache: cold, seed: 1}
"""


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("{osd_disc: {scheduler: none}}", "'osd_disc' is not a scope", "osd_disk"),
        ("{network: {delay: 1}}", "network has no key 'delay'", "delay_ms"),
        ("{network: {delay_ms: fast}}", "delay_ms must be a number, not 'fast'", ""),
        ("{network/host:a: {rate_mbit: .inf}}", "rate_mbit must be a number, not inf", ""),
        ("{network: {delay_ms: true}}", "delay_ms must be a number, not True", ""),
        ("{network: {jitter_ms: -1}}", "jitter_ms cannot be -1", ""),
        ("{network: {loss_pct: 100}}", "loss_pct cannot be 100", ""),
        ("{network: {mtu: 1500.5}}", "mtu must be a whole number of at least 68, not 1500.5", ""),
        ("{osd_store: {filesystem: zfs}}", "filesystem cannot be 'zfs': choose from xfs, btrfs, ext4", ""),
        ("{osd_store: {file_system: xfs}}", "osd_store has no key 'file_system'", "filesystem"),
        ("{osd_host: {tcp_rmem: 1}}", "'tcp_rmem' is not a sysctl key", ""),
        ("{client_disk/class:hdd: {scheduler: none}}", "client_disk takes no mask", ""),
        ("{osd_disk/hdd: {scheduler: none}}", "'hdd' is not a mask", ""),
        ("{network: {loss_pct: 1}}", "risks data: affects all traffic of the OSDs' hosts", "accept_risk"),
    ],
)
def test_a_wrong_word_is_named_with_its_line_and_the_right_one(text: str, what: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_sweep(SWEEP.replace("{GREATER}", text), file="try.yaml")
    assert what in caught.value.what
    assert caught.value.where == "try.yaml:5"
    assert remedy in caught.value.remedy


def test_every_scope_is_read() -> None:
    text = (
        '{osd_disk: {scheduler: bfq}, client_disk: {read_ahead_kb: 0}, osd_host: {net.ipv4.tcp_rmem: "1 2 3"}, '
        "osd_store/class:hdd: {filesystem: xfs}, network/host:a: {mtu: 9000}}"
    )
    sweep = parse_sweep("accept_risk: [mtu]\n" + SWEEP.replace("{GREATER}", text), file="try.yaml")
    assert [(s.scope, s.key) for s in sweep.configuration("x").settings] == [
        ("client_disk", "read_ahead_kb"),
        ("network/host:a", "mtu"),
        ("osd_disk", "scheduler"),
        ("osd_host", "net.ipv4.tcp_rmem"),
        ("osd_store/class:hdd", "filesystem"),
    ]

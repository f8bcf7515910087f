"""Proposed measurements: what carries a workload's weight is measured, and nothing twice."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.core.units import KIB, MIB
from cephfit.core.values.cells import SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.measurement import Measurement, Steady
from cephfit.core.values.profile import Profile
from cephfit.sweep.declaration.sweep_file import bundled_sweep, bundled_sweeps, parse_sweep, read_sweep
from cephfit.sweep.proposal import alignment_of, as_yaml, propose, sync_of, with_measurement

QUICK = read_sweep(bundled_sweep("quick"))


def workload(*demands: Demand, commits: Commits | None = None, aligned_to_8k: float | None = None) -> Profile:
    counts = {op: {b.name: 0 for b in SIZE_BINS} for op in Op}
    for demand in demands:
        counts[demand.pattern.op]["128K"] += demand.accesses
    alignment = None
    if aligned_to_8k is not None:
        shares = {"4K": 1.0, "8K": aligned_to_8k, "64K": 0.1, "own": 0.1}
        alignment = {Op.READ: {}, Op.WRITE: {"128K": shares}}
    return Profile(
        "app", counts, dict.fromkeys(Op, 0.5), demands=demands or None, commits=commits, alignment=alignment
    )


def demand(
    pattern: Pattern,
    nbytes: float,
    seconds: float | None,
    *,
    is_aligned: bool | None = True,
    depth: float | None = 1.0,
    is_sync: bool | None = True,
    accesses: int = 100,
) -> Demand:
    return Demand(pattern, nbytes, is_aligned, depth, is_sync, accesses, seconds)


def measured(measurement: Measurement) -> list[LoadedCell]:
    """All runs of one configuration and round."""
    loads = [measurement.under(name) for name in measurement.load_names]
    return [load.run_as(cell) for load in loads for cell in load.cells]


def test_kinds_that_carry_the_waiting_time_are_measured_and_rare_ones_are_not() -> None:
    profile = workload(
        demand(Pattern.RANDWRITE, 4096, 80.0),
        demand(Pattern.RANDREAD, 4096, 16.0),
        demand(Pattern.READ, MIB, 4.0, accesses=10**6),
    )
    proposal = propose(profile, QUICK.measurement)
    assert proposal.weighed_by == "waiting time"
    assert [(str(k.cell), k.weight) for k in proposal.kinds] == [("4K-randwrite", 0.8), ("4K-randread", 0.16)]
    assert [str(k.cell) for k in proposal.left_out] == ["1M-read"]
    assert [str(c) for c in proposal.measurement.cells] == ["4K-randread", "4K-randwrite"]
    assert proposal.measurement.loads == ()


def test_without_waiting_times_accesses_are_the_weight() -> None:
    profile = workload(
        demand(Pattern.RANDWRITE, 4096, 80.0, accesses=1), demand(Pattern.READ, MIB, None, accesses=99)
    )
    proposal = propose(profile, QUICK.measurement)
    assert proposal.weighed_by == "accesses"
    assert [str(k.cell) for k in proposal.kinds] == ["1M-read"]


def test_a_demand_is_divided_between_the_sizes_and_depths_around_it() -> None:
    """18K is halfway between 4K and 32K; depth 8 is halfway between 4 and 16 in the logarithm."""
    proposal = propose(workload(demand(Pattern.RANDREAD, 18 * KIB, 1.0, depth=8.0)), QUICK.measurement, covered=1)
    assert {str(k.cell): k.weight for k in proposal.kinds} == pytest.approx(
        {
            "4K-randread (depth 4)": 0.25,
            "4K-randread (depth 16)": 0.25,
            "32K-randread (depth 4)": 0.25,
            "32K-randread (depth 16)": 0.25,
        }
    )


def test_large_sizes_are_measured_at_fewer_depths() -> None:
    def depths(nbytes: int) -> set[int]:
        found = propose(workload(demand(Pattern.READ, nbytes, 1.0, depth=60.0)), QUICK.measurement, covered=1)
        return {k.cell.iodepth for k in found.kinds}

    assert [depths(n) for n in (4 * KIB, 128 * KIB, MIB, 32 * MIB)] == [{16, 64}, {16}, {4}, {1}]


def test_accesses_that_are_not_aligned_are_measured_so_at_the_workloads_alignment() -> None:
    odd = demand(Pattern.RANDWRITE, 128 * KIB, 1.0, is_aligned=False)
    assert alignment_of(workload(odd)) == 4 * KIB
    assert alignment_of(workload(odd, aligned_to_8k=0.5)) == 4 * KIB
    profile = workload(odd, aligned_to_8k=0.95)
    (kind,) = propose(profile, QUICK.measurement).kinds
    assert kind.cell == LoadedCell(128 * KIB, Pattern.RANDWRITE, 1, 8 * KIB)
    small = workload(demand(Pattern.RANDWRITE, 4096, 1.0, is_aligned=False))
    assert propose(small, QUICK.measurement).kinds[0].cell.align_nbytes == 0, "4K is not realigned to 4K"


@pytest.mark.parametrize(
    ("commits", "sync"),
    [
        (None, ""),
        (Commits(0), ""),
        (Commits(100), "fsync"),
        (Commits(80), "fsync"),
        (Commits(25), "every 4"),
        (Commits(1), "every 100"),
        (Commits(10, fua_writes=50), "dsync"),
    ],
)
def test_writes_are_flushed_as_often_as_the_workload_flushes(commits: Commits | None, sync: str) -> None:
    profile = workload(demand(Pattern.WRITE, 4096, 1.0, accesses=100), commits=commits)
    assert sync_of(profile, has_dsync=True) == sync
    assert sync_of(profile, has_dsync=False) == sync.replace("dsync", "fsync")
    assert propose(profile, QUICK.measurement).measurement.sync == sync


def test_writes_in_the_background_are_not_flushed_and_reads_share_the_load_of_writes() -> None:
    profile = workload(
        demand(Pattern.WRITE, 4096, 5.0),
        demand(Pattern.READ, 4096, 3.0),
        demand(Pattern.RANDWRITE, 4096, 2.0, is_sync=False, depth=64.0),
        commits=Commits(100),
    )
    m = propose(profile, QUICK.measurement).measurement
    assert (m.iodepth, m.sync) == (1, "fsync")
    assert [(load.name, load.iodepth, load.sync) for load in m.loads] == [("depth-64-no-sync", 64, "")]
    assert [str(c) for c in m.under("depth-64-no-sync").cells] == ["4K-randwrite"]


DEMANDS = st.builds(
    Demand,
    st.sampled_from(Pattern),
    st.floats(512, 1e8),
    st.sampled_from([True, False, None]),
    st.one_of(st.none(), st.floats(1, 300)),
    st.sampled_from([True, False, None]),
    st.integers(1, 10**6),
    st.floats(0.001, 1000),
)


@settings(deadline=None)
@given(
    st.lists(DEMANDS, min_size=1, max_size=12),
    st.sampled_from([None, Commits(0), Commits(10**6), Commits(3000), Commits(1, fua_writes=9)]),
    st.sampled_from(["quick", "meyer2017", "scaling", "one-pool"]),
)
def test_every_kept_kind_is_measured_and_no_run_is_there_twice(
    demands: list[Demand], commits: Commits | None, name: str
) -> None:
    sweep = read_sweep(bundled_sweep(name))
    proposal = propose(workload(*demands, commits=commits), sweep.measurement)
    runs = measured(proposal.measurement)
    assert {kind.cell for kind in proposal.kinds} <= set(runs)
    assert len(runs) == len(set(runs))
    assert proposal.covered >= 0.95 - 1e-6
    assert proposal.covered + sum(k.weight for k in proposal.left_out) == pytest.approx(1)
    assert all(a.weight >= b.weight for a, b in zip(proposal.kinds, proposal.kinds[1:], strict=False))
    # The section is read back as the same measurement, and the rest of the file stays.
    text = with_measurement(sweep.text, as_yaml(proposal.measurement))
    again = parse_sweep(text, file="proposed.yaml")
    assert again.measurement == proposal.measurement
    assert again.configurations == sweep.configurations
    assert len(measured(proposal.everything)) >= len(runs)


@pytest.mark.parametrize("name", list(bundled_sweeps()))
def test_only_the_section_is_replaced(name: str) -> None:
    sweep = read_sweep(bundled_sweep(name))
    text = with_measurement(sweep.text, "measurement: NEW\n")
    before, _, after = text.partition("measurement: NEW\n")
    assert sweep.text.startswith(before)
    assert sweep.text.endswith(after)
    removed = sweep.text.removeprefix(before)[: len(sweep.text) - len(before) - len(after)]
    assert removed.startswith("measurement:")
    assert all(line.startswith((" ", "measurement:")) or not line for line in removed.splitlines())


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("a: 1\nmeasurement: {x: 1} # c\nb: 2\n", "a: 1\nNEW\nb: 2\n"),
        ("a: 1\nmeasurement:\n  x: 1\n\n# of b\nb: 2\n", "a: 1\nNEW\n\n# of b\nb: 2\n"),
        ("measurement:\n  x: 1\n  # of x\n# end\n", "NEW\n# end\n"),
        ("measurement:\n  x: 1", "NEW\n"),
    ],
)
def test_text_around_the_section_stays(text: str, then: str) -> None:
    assert with_measurement(text, "NEW\n") == then


def test_a_synchronous_engine_and_small_volumes_are_replaced_where_the_proposal_needs_it() -> None:
    base = read_sweep(bundled_sweep("meyer2017")).measurement
    assert base.ioengine in ("sync", "psync")
    profile = workload(demand(Pattern.RANDREAD, 32 * MIB, 9.0, is_aligned=False), demand(Pattern.READ, 4096, 9.0))
    alone = propose(profile, base)
    assert alone.measurement.ioengine == base.ioengine
    deep = propose(workload(demand(Pattern.RANDREAD, 4096, 1.0, depth=16.0)), base)
    assert deep.measurement.ioengine == "libaio"
    assert "cannot have 16 I/Os in flight" in deep.notes[0]
    small = parse_sweep(QUICK.text.replace("volume_size: 512M", "volume_size: 32M"), file="small.yaml").measurement
    assert propose(profile, small).measurement.volume_nbytes == 64 * MIB


def test_steady_runs_and_rests_of_the_sweep_are_kept() -> None:
    rules = "measurement:\n  steady: {within: 12.5%, limit_seconds: 40}\n  settle_seconds: 1.5\n"
    base = parse_sweep(QUICK.text.replace("measurement:\n", rules), file="steady.yaml").measurement
    proposed = propose(workload(demand(Pattern.WRITE, 4096, 1.0)), base).measurement
    again = parse_sweep(with_measurement(QUICK.text, as_yaml(proposed)), file="proposed.yaml").measurement
    assert again == proposed
    assert (again.steady, again.settle_seconds) == (Steady(0.125, 40.0), 1.5)


def test_a_profile_with_counts_only_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match="cephfit trace profile"):
        propose(workload(), QUICK.measurement)


def test_the_command_prints_a_section_to_paste_and_writes_a_sweep_file(tmp_path: Path) -> None:
    profile = workload(
        demand(Pattern.RANDWRITE, 4096, 5.0, depth=4.0),
        demand(Pattern.WRITE, 128 * KIB, 4.0, is_aligned=False),
        demand(Pattern.READ, MIB, 0.1),
        commits=Commits(200),
    )
    file, out = tmp_path / "app.json", tmp_path / "app.yaml"
    file.write_text(json.dumps(profile.to_json()))
    shown = CliRunner().invoke(cephfit, ["sweep", "plan", "quick", "--for", str(file)])
    assert shown.exit_code == 0, shown.output
    text = with_measurement(QUICK.text, shown.stdout)
    assert [str(c) for c in parse_sweep(text, file="pasted.yaml").measurement.cells] == [
        "4K-randwrite",
        "128K-write",
    ]
    assert "#   54.9 %  4K-randwrite (depth 4, fsync)\n" in shown.stdout
    assert "not measured: 1M-read 1.1 %" in shown.stdout
    written = CliRunner().invoke(cephfit, ["sweep", "plan", "quick", "--for", str(file), "-o", str(out), "--json"])
    assert written.exit_code == 0, written.output
    document = json.loads(written.stdout)
    assert read_sweep(out).configurations == QUICK.configurations
    assert document["runs"] == len(measured(read_sweep(out).measurement))
    assert document["expected_seconds"] < document["expected_seconds_of_everything"]
    for wrong in (["-o", str(out)], ["--for", str(file), "--target", "sim"]):
        assert CliRunner().invoke(cephfit, ["sweep", "plan", "quick", *wrong]).exit_code == 2
    lost = CliRunner().invoke(cephfit, ["sweep", "plan", str(out), "--for", str(file), "-o", str(out)])
    assert "would be lost" in str(lost.exception)
    assert read_sweep(out).configurations == QUICK.configurations

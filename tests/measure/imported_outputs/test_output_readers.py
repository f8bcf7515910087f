"""The contract of all readers of benchmark outputs, and the figures that each gives for known runs."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from benchmark_outputs import (
    CSV,
    FIO_2_TEXT,
    OUTPUTS,
    RADOS_HAMMER,
    RADOS_READ,
    RADOS_WRITE,
    RBD_WRITE,
    fio_2,
    fio_2_text,
)
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.values.cells import Pattern
from cephfit.measure.imported_outputs.output_reader import FileHints, OutputContent
from cephfit.operations.imported_files import reader_called, readers

HINTS = FileHints(Pattern.RANDREAD, 4096, 8)


def read(name: str, text: str, hints: FileHints = HINTS) -> OutputContent:
    return reader_called(name).read(text, hints)


def test_every_format_has_an_output_here() -> None:
    assert {reader.name for reader in readers()} == set(OUTPUTS)


@pytest.mark.parametrize("name", OUTPUTS)
def test_each_output_is_recognised_by_its_own_reader_alone(name: str) -> None:
    assert [reader.name for reader in readers() if reader.sniff(OUTPUTS[name])] == [name]


@pytest.mark.parametrize("name", sorted(set(OUTPUTS) - {"csv"}))
def test_text_around_an_output_changes_nothing(name: str) -> None:
    noisy = f"fio: a warning\n{OUTPUTS[name]}\nthe end\n"
    assert reader_called(name).sniff(noisy)
    found, plain = read(name, noisy), read(name, OUTPUTS[name])
    assert [r.metrics for r in found.results] == [r.metrics for r in plain.results]


@pytest.mark.parametrize("name", OUTPUTS)
def test_results_obey_littles_law_and_have_a_place(name: str) -> None:
    content = read(name, OUTPUTS[name])
    assert content.results
    assert not content.not_understood
    for result in content.results:
        assert result.place
        in_flight = result.metrics.iops * result.metrics.latency_mean_ns / 1e9
        assert in_flight == pytest.approx(result.iodepth, rel=0.05)


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_truncated_output_gives_figures_or_a_reason_but_no_error(name: str) -> None:
    text = OUTPUTS[name]
    for end in range(0, len(text), max(1, len(text) // 60)):
        read(name, text[:end])
    whole = len(read(name, text).results)
    begin = read(name, text[: len(text) // 9])
    assert len(begin.results) < whole or begin.not_understood


@given(st.sampled_from(sorted(OUTPUTS)), st.text(max_size=200), st.integers(0, 2000))
def test_no_text_raises(name: str, noise: str, at: int) -> None:
    text = OUTPUTS[name]
    for changed in (noise, text[:at] + noise + text[at + len(noise) :]):
        reader_called(name).sniff(changed)
        read(name, changed, FileHints())


ODD_VALUES = (None, True, -1, 1e308, 10**400, math.nan, math.inf, "abc", "9" * 5000, [], [1], {"a": 1})


def places_in(part: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each value below a JSON value."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        yield (*above, key)
        yield from places_in(value, *above, key)


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: repr(value)[:12])
def test_no_value_in_a_document_of_fio_raises(value: Any) -> None:
    options = dict.fromkeys(("numjobs", "rate", "rate_iops", "thinktime", "fsync", "blockalign"), "0")
    for place in places_in(fio_2(**options)):
        document = part = fio_2(**options)
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value
        content = read("fio-json", json.dumps(document), FileHints())
        assert content.results or content.not_understood, place


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 400, "1e999", "nan"], ids=lambda n: n[:5] + str(len(n)))
@pytest.mark.parametrize("name", OUTPUTS)
def test_no_number_in_an_output_raises(name: str, number: str) -> None:
    for found in re.finditer(r"\d+", OUTPUTS[name]):
        read(name, OUTPUTS[name][: found.start()] + number + OUTPUTS[name][found.end() :])


def test_a_document_that_is_nested_without_an_end_is_named() -> None:
    (part,) = read("fio-json", '{"fio version": 1, "jobs": ' + "[" * 100_000).not_understood
    assert "damaged or truncated" in part.reason


@pytest.mark.parametrize("name", ["fio-json", "fio-text", "fio-terse"])
def test_one_run_has_the_same_figures_in_every_format_of_fio(name: str) -> None:
    """8 in flight, 15,000 I/Os of 4 KiB in 30 s, 16 ms each on average."""
    (result,) = read(name, OUTPUTS[name]).results
    assert (result.pattern, result.nbytes, result.iodepth) == (Pattern.RANDREAD, 4096, 8)
    assert result.metrics.iops == pytest.approx(500)
    assert result.metrics.n_ios == 15_000
    assert result.metrics.latency_mean_ns == pytest.approx(16e6)


def test_fio_2_has_kib_and_microseconds() -> None:
    (result,) = read("fio-json", fio_2_text()).results
    assert result.metrics.nbytes_per_s == pytest.approx(500 * 4096)
    assert result.metrics.latency_percentiles_ns == {50.0: 16e6, 99.0: 48e6}
    assert result.finished_ns == 1444144664 * 10**9


def test_a_document_of_version_3_that_was_shortened() -> None:
    job = {
        "jobname": "a",
        "job options": {"rw": "randread", "bs": "4k", "iodepth": "1"},
        "read": {"io_bytes": 409600, "total_ios": 100, "runtime": 1000, "clat_ns": {"mean": 1e7}},
        "write": {"io_bytes": 0},
    }
    (result,) = read("fio-json", json.dumps({"fio version": "fio-3.28", "jobs": [job]})).results
    assert (result.nbytes, result.metrics.iops, result.metrics.latency_mean_ns) == (4096, 100, 1e7)


def test_percentiles_of_the_normal_output_have_the_unit_of_their_heading() -> None:
    (result,) = read("fio-text", FIO_2_TEXT).results
    assert result.metrics.latency_percentiles_ns[50.0] == 15_900_000


def test_rows_below_another_heading_are_no_percentiles_of_completion() -> None:
    """fio's options lat_percentiles and slat_percentiles add tables in other units."""
    others = "    lat percentiles (msec):\n     | 50.00th=[   17], 99.00th=[   49]\n"
    changed = FIO_2_TEXT.replace("    bw (KB  /s)", f"{others}    bw (KB  /s)")
    assert read("fio-text", changed).results == read("fio-text", FIO_2_TEXT).results


def test_runs_in_one_file_of_normal_output_are_not_summed() -> None:
    content = read(
        "fio-text", FIO_2_TEXT + FIO_2_TEXT.replace("iops=500", "iops=1000").replace("r=15000", "r=30000")
    )
    assert [(r.place, r.metrics.iops, r.iodepth) for r in content.results] == [
        ("line 5 (job)", 500.0, 8),
        ("line 24 (job)", 1000.0, 8),
    ]


def test_jobs_that_ran_together_at_different_depths_have_no_depth() -> None:
    second = FIO_2_TEXT.splitlines()[0].replace("job:", "other:").replace("iodepth=8", "iodepth=4")
    (lost,) = read("fio-text", f"{second}\n{FIO_2_TEXT}").not_understood
    assert "at different depths" in lost.reason


def test_lines_of_one_group_of_terse_output_may_be_processes_or_repeats() -> None:
    line = OUTPUTS["fio-terse"]
    later = line.replace("job;0;", "job;1;")
    assert len(read("fio-terse", f"{line}\n{later}").results) == 2
    content = read("fio-terse", f"{line}\n{line}\n{later}")
    assert [result.place for result in content.results] == ["line 3 (job)"]
    assert all("2 lines have the group 0" in lost.reason for lost in content.not_understood)


def test_several_documents_of_which_one_is_damaged() -> None:
    text = f"{fio_2_text()}\n{fio_2_text(bs='64k')[:-200]}\n{fio_2_text(rw='randwrite', iodepth='2')}\n"
    content = read("fio-json", text)
    assert [(r.nbytes, r.pattern.value, r.iodepth) for r in content.results] == [
        (4096, "randread", 8),
        (4096, "randwrite", 2),
    ]
    (lost,) = content.not_understood
    assert lost.place == f"line {fio_2_text().count(chr(10)) + 2}"
    assert "damaged or truncated" in lost.reason


def test_client_server_output_names_the_hosts_and_omits_their_sum() -> None:
    document = fio_2()
    (entry,) = document.pop("jobs")
    del entry["job options"]["ioengine"]
    hosts = [{**entry, "hostname": host} for host in ("h1", "h2")]
    document |= {
        "client_stats": [*hosts, {**entry, "jobname": "All clients", "hostname": ""}],
        "global options": {"ioengine": "libaio"},
    }
    content = read("fio-json", json.dumps(document))
    assert [(r.client, r.iodepth) for r in content.results] == [("h1", 8), ("h2", 8)]


def test_processes_of_one_job_are_summed_and_group_reporting_is_seen_by_their_number() -> None:
    document = fio_2(numjobs="2")
    document["jobs"] *= 2
    (summed,) = read("fio-json", json.dumps(document)).results
    assert (summed.iodepth, summed.metrics.iops) == (16, pytest.approx(1000))
    grouped = fio_2(numjobs="4", iodepth="2")
    grouped["jobs"][0]["read"]["clat"]["mean"] = 16_000.0
    grouped["jobs"][0]["read"]["clat"]["max"] = 64_000
    (one,) = read("fio-json", json.dumps(grouped)).results
    assert (one.iodepth, one.metrics.iops) == (8, pytest.approx(500))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"rate_iops": "500"}, 500),
        ({"rate_iops": "500,10"}, 500),
        ({"rate_iops": ",10"}, None),
        ({"rate_iops": "0"}, None),
        ({"rate": "2m"}, 512),
        ({"numjobs": "4", "iodepth": "2", "rate_iops": "125"}, 500),
    ],
)
def test_a_limit_is_that_of_all_processes_in_the_measured_direction(
    options: dict[str, str], limit: int | None
) -> None:
    (result,) = read("fio-json", fio_2_text(**options)).results
    assert result.rate_iops == limit


def test_a_limit_of_a_mix_is_that_of_both_directions() -> None:
    document = fio_2(rw="randrw", rwmixread="50", rate_iops="500,100")
    document["jobs"][0]["write"] = document["jobs"][0]["read"]
    assert [r.rate_iops for r in read("fio-json", json.dumps(document)).results] == [600, 600]
    document["jobs"][0]["job options"]["rate_iops"] = "500,"
    (lost,) = read("fio-json", json.dumps(document)).not_understood
    assert lost.reason == "only one direction of the mix was limited (rate or rate_iops)"


@pytest.mark.parametrize(
    ("option", "limit"), [({"rate_iops": "100"}, 100), ({"rate": "400k"}, 100), ({"rate": "0"}, 0)]
)
def test_the_limit_of_a_client_is_that_of_all_its_processes(option: dict[str, str], limit: int) -> None:
    """fio's rate and rate_iops limit each process."""
    grouped, apart = fio_2(numjobs="4", iodepth="2", **option), fio_2(numjobs="2", **option)
    apart["jobs"] *= 2
    for document, n_processes in ((fio_2(**option), 1), (grouped, 4), (apart, 2)):
        (found,) = read("fio-json", json.dumps(document)).results
        assert found.rate_iops == (n_processes * limit or None)


def test_old_versions_without_options_take_pattern_size_and_depth_from_hints() -> None:
    document = fio_2()
    del document["jobs"][0]["job options"]
    del document["jobs"][0]["read"]["total_ios"]
    (found,) = read("fio-json", json.dumps(document)).results
    assert (found.pattern, found.nbytes, found.iodepth) == (Pattern.RANDREAD, 4096, 8)
    (lost,) = read("fio-json", json.dumps(document), FileHints()).not_understood
    assert "add `pattern` to a mapping" in lost.reason


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"bs": "4k", "bssplit": "4k/50:8k/50"}, "several sizes"),
        ({"thinktime": "100"}, "thinktime"),
        ({"rw": "trim"}, "rw=trim"),
        ({"iodepth": "1"}, "needs more than 1 I/Os in flight"),
    ],
)
def test_what_has_no_rate_of_one_kind_is_named_with_the_reason(options: dict[str, str], why: str) -> None:
    document = fio_2()
    document["jobs"][0]["job options"] |= options
    content = read("fio-json", json.dumps(document))
    assert not content.results
    (lost,) = content.not_understood
    assert lost.place == "job 1 (job)"
    assert why in lost.reason


def test_terse_output_contradicts_a_size_that_a_mapping_states_wrongly() -> None:
    (part,) = read("fio-terse", OUTPUTS["fio-terse"], FileHints(Pattern.RANDREAD, 8192, 8)).not_understood
    assert part.reason == "60000 KiB in blocks of 8K are 250 IOPS, not 500"


def test_a_failed_job_and_another_block_size_are_refused() -> None:
    failed, other = fio_2(), fio_2()
    failed["jobs"][0]["error"] = 28
    other["jobs"][0]["job options"]["bs"] = "8k"
    assert "error 28" in read("fio-json", json.dumps(failed)).not_understood[0].reason
    assert "4096 bytes, and bs is 8192" in read("fio-json", json.dumps(other)).not_understood[0].reason


def test_jobs_of_different_kinds_that_ran_together_have_no_rate() -> None:
    document = fio_2()
    document["jobs"] += fio_2(rw="randwrite")["jobs"]
    content = read("fio-json", json.dumps(document))
    assert not content.results
    assert len(content.not_understood) == 2
    document["jobs"][1]["groupid"] = 1  # after a stonewall
    assert len(read("fio-json", json.dumps(document)).results) == 2


def test_rados_bench_has_its_rate_from_the_number_and_the_time() -> None:
    (found,) = read("rados-bench", RADOS_WRITE).results
    assert (found.pattern, found.nbytes, found.iodepth) == (Pattern.WRITE, 4 << 20, 16)
    assert found.metrics.iops == pytest.approx(20.0)
    assert found.metrics.latency_mean_ns == pytest.approx(0.79e9)


@pytest.mark.parametrize("pattern", [Pattern.READ, Pattern.RANDREAD])
def test_reads_of_rados_bench_need_a_pattern_and_have_the_depth_of_the_lines(pattern: Pattern) -> None:
    (found,) = read("rados-bench", RADOS_READ, FileHints(pattern)).results
    assert (found.pattern, found.iodepth, found.metrics.iops) == (pattern, 16, pytest.approx(31.0))
    (lost,) = read("rados-bench", RADOS_READ, FileHints()).not_understood
    assert "sequential (seq) or random (rand)" in lost.reason


def test_rados_bench_before_jewel_needs_a_depth_from_a_mapping() -> None:
    (found,) = read("rados-bench", RADOS_HAMMER, FileHints(iodepth=16)).results
    assert found.metrics.iops == pytest.approx(7430 / 60.231902)
    (lost,) = read("rados-bench", RADOS_HAMMER, FileHints()).not_understood
    assert "add `iodepth` to a mapping" in lost.reason


def test_rados_bench_as_json() -> None:
    """The fields of obj_bencher.cc with ``--format json``; numbers are text."""
    document = {
        "total_time_run": "10.5",
        "total_writes_made": "210",
        "write_size": "4194304",
        "average_latency": "0.79",
        "datas": [{"sec": "1", "cur_ops": "16"}],
    }
    (found,) = read("rados-bench", f"hints = 1\n{json.dumps(document)}").results
    assert (found.iodepth, found.metrics.iops) == (16, pytest.approx(20.0))


def test_several_runs_of_rados_bench_in_one_file_keep_their_own_depth() -> None:
    text = RADOS_WRITE + RADOS_WRITE.replace("Maintaining 16", "Maintaining 32").replace("0.79", "1.58")
    assert [r.iodepth for r in read("rados-bench", text).results] == [16, 32]
    reads = RADOS_READ + RADOS_READ.replace("    1      16", "    1      32").replace("0.5\n", "1.0\n")
    assert [r.iodepth for r in read("rados-bench", reads).results] == [16, 32]


def test_rbd_bench_and_its_mixes() -> None:
    text = RBD_WRITE + RBD_WRITE.replace("type write", "type readwrite read:write=50:50")
    content = read("rbd-bench", text)
    (found,) = content.results
    assert (found.pattern, found.nbytes, found.iodepth) == (Pattern.WRITE, 4096, 16)
    assert found.metrics.iops == pytest.approx(23917.8)
    assert "mixes reads and writes" in content.not_understood[0].reason


def test_a_csv_with_a_wrong_row_gives_nothing_and_names_the_row() -> None:
    content = read("csv", CSV.replace("900", "fast"))
    assert not content.results
    assert content.not_understood[0].place == "line 4, column iops"

"""What the report says: the answer first, all facts, and sense when parts are missing."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from example_run import (
    RUN_ID,
    SWEEP_TEXT,
    example_assessment,
    example_predictions,
    example_profile,
    example_run,
    example_samples,
    fill,
)

from cephfit.cli.reports.report_command import command
from cephfit.core.errors import CephfitError, InputError
from cephfit.core.protocols import Applied
from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.values.prediction import Verdict
from cephfit.core.values.sample import State
from cephfit.mapper import predictor
from cephfit.results import open_baselines
from cephfit.results.report.render import to_html, to_markdown
from cephfit.results.report.report_build import read_findings, report_of
from cephfit.results.report.report_model import Findings
from cephfit.results.report.summary import settings_of
from cephfit.results.store.sample_store import Store
from cephfit.results.tables import baseline_csv

VOID = {"meta", "link", "br", "img", "input", "hr", "col"}


class Page(HTMLParser):
    """Text and structure of a page; complains about tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            # Numbers and their "%" stay on one line.
            self.text.setdefault(self.open[-1], []).append(data.strip().replace("\xa0%", " %"))


@pytest.fixture(scope="module")
def findings(finished_store: Path) -> Findings:
    with Store.open(finished_store) as store:
        return read_findings(store)


def page_of(findings: Findings) -> Page:
    return Page(to_html(report_of(findings, made_ns=0)))


def run_report(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)


def test_the_answer_is_in_the_first_lines(findings: Findings) -> None:
    answer = report_of(findings, made_ns=0).answer
    best = example_predictions().of("hybrid")
    assert answer.headline.startswith(
        f"For the workload pgbench, configuration hybrid is predicted to be {best.relative / 100:.2f} times as "
        "fast as the default (95 % interval "
    )
    assert ", and measured 1." in answer.headline and "5 runs" in answer.headline
    assert answer.sentences[0].startswith("Configuration hybrid sets "), "what to do, not only its name"
    assert answer.sentences[1].startswith(
        "The worst is throttled, predicted to be 0.59 times as fast as the default"
    )
    assert answer.sentences[2] == "Not distinguishable from the default: readahead and A-again."
    assert "The measured order is the predicted one. The cost of following the prediction" in answer.sentences[3]
    assert answer.sentences[-1].startswith("`cephfit apply hybrid --baselines ")
    page = page_of(findings)
    assert page.text["h1"] == [answer.headline]


def test_the_page_is_whole_and_self_contained(findings: Findings) -> None:
    html = to_html(report_of(findings, made_ns=0))
    page = Page(html)
    assert not any(tag in ("script", "iframe", "object", "embed", "img") for tag, _ in page.tags)
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "data:,").startswith(("data:", "#")), (tag, attributes)
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style and "@import" not in style and "prefers-color-scheme: dark" in style


def test_tables_have_headers_and_figures_have_titles(findings: Findings) -> None:
    html = to_html(report_of(findings, made_ns=0))
    for table in re.findall(r"<table.*?</table>", html, re.DOTALL):
        assert '<th scope="col"' in table
    for figure in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        assert 'aria-hidden="true"' in figure or ("<title>" in figure and 'role="img"' in figure)
    assert html.count("<svg") > 15


def test_everything_that_was_measured_is_shown(findings: Findings) -> None:
    text = " ".join(part for parts in page_of(findings).text.values() for part in parts)
    for fact in (
        *("lab:default", RUN_ID, "2017", "cold", "fio-3.33", "libaio", "16.2.15 (pacific)", "ntp synchronised"),
        *("Noise floor", "Cross-check", "556 ok samples", "2 PGs active+recovering while it ran", "No space left"),
        *(
            "osd.0 and osd.1",
            "the mix adds up as time",
            "Each run lasted 30 s.",
            "Round 1",
            "Seek distance",
            "Latency",
        ),
        *("description: the default and five configurations <that differ> &",),
    ):
        assert fact in text, fact


def test_a_secret_among_the_facts_is_not_shown(findings: Findings) -> None:
    report = report_of(findings, made_ns=0)
    for text in (to_html(report), to_markdown(report)):
        assert "AQDnot-to-be-shown" not in text


def test_names_from_the_sweep_file_cannot_become_markup(findings: Findings) -> None:
    evil = "<img src=x onerror=alert(1)>|`*"
    samples = tuple(replace(s, key=replace(s.key, configuration=evil)) if s.key.configuration == "hybrid" else s
                    for s in findings.samples)  # fmt: skip
    predictions = example_predictions()
    rows = tuple(
        replace(p, configuration=evil) if p.configuration == "hybrid" else p for p in predictions.predictions
    )
    changed = replace(
        findings,
        samples=SampleColumns.of(samples),
        predictions=replace(predictions, predictions=rows, best=evil),
        assessment=None,
    )
    report = report_of(changed, made_ns=0)
    assert not any(tag == "img" for tag, _ in Page(to_html(report)).tags)
    assert "<img" not in to_markdown(report).replace("\\<img", "")


def test_simulated_figures_say_so_first(findings: Findings) -> None:
    simulated = replace(findings, run=example_run(target="simulated:hybrid"))
    report = report_of(simulated, made_ns=0)
    html = to_html(report)
    assert report.answer.warning.startswith("Simulated figures")
    assert html.index("Simulated figures") < html.index("<h1>")
    assert to_markdown(report).index("Simulated figures") < 80
    assert "All figures are simulated." in report.caveats
    assert "Simulated" not in to_html(report_of(findings, made_ns=0))


def test_no_better_configuration_is_an_answer_too(findings: Findings) -> None:
    predictions = example_predictions()
    rows = tuple(
        p if p.verdict is Verdict.DEFAULT else replace(p, verdict=Verdict.INDISTINGUISHABLE)
        for p in predictions.predictions
    )
    same = replace(predictions, predictions=rows, best="A", worst="A")
    answer = report_of(replace(findings, predictions=same, assessment=None), made_ns=0).answer
    assert answer.headline == (
        "For the workload pgbench, no configuration is predicted to be distinguishably better than the default, A."
    )
    assert "No configuration is predicted to be distinguishably worse than the default." in answer.sentences
    assert "This is only a prediction" in answer.sentences[-1]


def test_a_prediction_by_a_model_of_a_later_version_is_reported(findings: Findings) -> None:
    later = replace(example_predictions(), model="later")
    report = report_of(replace(findings, predictions=later), made_ns=0)
    assert "Model later: a model that this version of cephfit does not know." in report.caveats
    assert "later" in to_html(report)
    assert "model `later`" in to_markdown(report)


def test_who_may_be_as_good_as_the_best_is_named(findings: Findings) -> None:
    assert "possibly as good" not in " ".join(report_of(findings, made_ns=0).answer.sentences)
    tied = replace(example_predictions(), as_good=("ssd", "mixed"))
    sentences = report_of(replace(findings, predictions=tied), made_ns=0).answer.sentences
    assert f"Not distinguishable from {tied.best}, and possibly as good: ssd and mixed." in sentences


def test_a_prediction_that_failed_is_reported_as_clearly(findings: Findings) -> None:
    regret = {"regret_pct": 12.34, "regret_low_pct": 9.87, "regret_high_pct": 14.0}
    wrong = replace(example_assessment(), order_held=False, **regret)
    sentences = report_of(replace(findings, assessment=wrong), made_ns=0).answer.sentences
    cost = "compared with the best configuration that was run, is 12.3 % (9.9 to 14.0)."
    expected = f"The measured order is NOT the predicted one. The cost of following the prediction, {cost}"
    assert expected in " ".join(sentences)


def test_an_order_is_claimed_only_where_the_runs_show_it(findings: Findings) -> None:
    def answered(**changes: object) -> str:
        changed = replace(example_assessment(), **changes)  # type: ignore[arg-type]
        return " ".join(report_of(replace(findings, assessment=changed), made_ns=0).answer.sentences)

    assert "The measured order is the predicted one. " in answered()
    best, default, worst = example_assessment().rows
    tied = (best, default, replace(worst, measured_relative=101.0, measured_low=90.0, measured_high=113.0))
    assert "The measured order does not contradict the prediction" in answered(rows=tied)
    near = (best, default, replace(worst, measured_relative=95.0, measured_low=80.0, measured_high=113.0))
    ties = (("A", "throttled"),)
    assert "but these runs cannot distinguish A from throttled" in answered(rows=near, ties=ties)
    assert "is the predicted one. " in answered(rows=near), "compared directly they are distinguishable"
    assert "as far as these runs can show" in answered(ties=None), "a store from before ties were stored"
    noise = answered(order_held=None)
    assert "These runs cannot distinguish any of the configurations whose order was predicted." in noise
    assert "overlap" not in noise and "is the predicted one" not in noise
    flat = (replace(best, predicted_low=99.0), default, replace(worst, predicted_high=101.0))
    assert "no order was predicted" in answered(order_held=None, rows=flat)
    assert "too few values" not in answered(order_held=None, rows=flat)
    assert "nothing to compare" in answered(rows=(default,), order_held=None)


def test_where_the_predicted_best_was_not_run_the_order_is_known_and_its_cost_is_not(findings: Findings) -> None:
    best, *others = example_assessment().rows
    without = replace(example_assessment(), rows=tuple(others), regret_pct=None)
    sentences = " ".join(report_of(replace(findings, assessment=without), made_ns=0).answer.sentences)
    assert "pgbench was run on 2 configurations. The measured order is the predicted one." in sentences
    assert (
        f"The predicted best, {best.configuration}, was not run, so the cost of following the prediction is"
        in sentences
    )
    assert "too few values" not in sentences
    empty = replace(best, measured_relative=None, measured_low=None, measured_high=None, values=())
    failed = replace(without, rows=(empty, *others))
    sentences = " ".join(report_of(replace(findings, assessment=failed), made_ns=0).answer.sentences)
    assert f"The predicted best, {best.configuration}, gave no value" in sentences


def test_runs_of_several_workloads_are_distinguished(findings: Findings) -> None:
    (name, run), *_ = findings.workload_samples
    alone = report_of(replace(findings, workload_samples=((name, run),)), made_ns=0).method.workload_runs
    assert [row[0] for row in alone] == [run.configuration]
    both = replace(findings, workload_samples=((name, run), ("myapp", replace(run, metric="requests/s"))))
    rows = report_of(both, made_ns=0).method.workload_runs
    assert [row[0] for row in rows] == [f"{name} on {run.configuration}", f"myapp on {run.configuration}"]


def test_runs_that_judged_another_prediction_do_not_vouch_for_this_one(findings: Findings) -> None:
    predictions = replace(example_predictions(), model="meyer")
    report = report_of(replace(findings, predictions=predictions), made_ns=0)
    assert "measured" not in report.answer.headline
    assert "this one has not been verified yet" in report.answer.sentences[-2]
    assert any("another prediction than the one above" in caveat for caveat in report.caveats)


@pytest.mark.parametrize(
    "missing",
    [
        {"profile": None},
        {"assessment": None, "workload_samples": ()},
        {"profile": None, "predictions": None, "assessment": None, "workload_samples": ()},
        {"samples": SampleColumns.of(()), "applied": (), "fio": None},
        {"predictions": None},
        {"samples": SampleColumns.of(()), "applied": (), "fio": None, "profile": None, "predictions": None,
         "assessment": None, "workload_samples": ()},
    ],
)  # fmt: skip
def test_any_part_may_be_missing(findings: Findings, missing: dict[str, object]) -> None:
    report = report_of(replace(findings, **missing), made_ns=0)  # type: ignore[arg-type]
    page = Page(to_html(report))
    assert page.text["h1"] == [report.answer.headline]
    assert report.answer.headline in to_markdown(report).replace("\\", "")
    if "predictions" in missing:
        assert report.answer.headline.startswith("The sweep quick on lab:default")


def test_an_interval_without_ends_and_a_row_without_values_can_be_shown(findings: Findings) -> None:
    predictions = example_predictions()
    open_ended = tuple(
        replace(p, low=float("-inf"), high=float("inf")) if p.configuration == "hybrid" else p
        for p in predictions.predictions
    )
    assessment = example_assessment()
    first = replace(assessment.rows[0], measured_relative=None, measured_low=None, measured_high=None, values=())
    changed = replace(
        findings,
        predictions=replace(predictions, predictions=open_ended, noise_floor=float("inf")),
        assessment=replace(assessment, rows=(first, *assessment.rows[1:]), order_held=None, regret_pct=None),
    )
    report = report_of(changed, made_ns=0)
    assert "(its interval is not known)" in report.answer.headline
    assert "The predicted best, hybrid, gave no value" in " ".join(report.answer.sentences)
    assert "gave as few as 0 values" in " ".join(report.caveats)
    Page(to_html(report))


def test_an_unfinished_run_says_so(findings: Findings) -> None:
    report = report_of(replace(findings, run=example_run()), made_ns=0)
    assert any("not finished" in caveat for caveat in report.caveats)


def test_settings_that_nothing_reads_are_reported(findings: Findings) -> None:
    """Else a FileStore option on BlueStore would pass for one that was tried and did not matter."""
    facts = {**findings.run.facts, "without_effect": {"one-copy": ["filestore_op_threads is FileStore's"]}}
    report = report_of(replace(findings, run=replace(findings.run, facts=facts)), made_ns=0)
    assert (
        "Configuration one-copy has settings without effect here: filestore_op_threads is FileStore's."
        in report.caveats
    )


def test_reads_that_came_from_memory_are_told(findings: Findings) -> None:
    """What `sweep run` found out before the first read: caches warm, volumes smaller than these."""
    facts = {
        **findings.run.facts,
        "in_memory": "caches are warm, and the volumes (1 GiB) fit into those of 3 OSDs",
    }
    report = report_of(replace(findings, run=replace(findings.run, facts=facts)), made_ns=0)
    assert "Caches are warm, and the volumes (1 GiB) fit into those of 3 OSDs." in report.caveats


def test_markdown_tables_are_tables(findings: Findings) -> None:
    text = to_markdown(report_of(findings, made_ns=0))
    assert text.splitlines()[2].startswith("**For the workload pgbench, configuration hybrid is predicted to be")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) >= 10
    for table in tables:
        lines = table.splitlines()
        assert re.fullmatch(r"\|(-+:?\|)+", lines[1]), lines[:2]
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) == 1, lines[:3]
    assert "    measurement: {repeats: 2, clients: 2, seed: 2017}" in text and SWEEP_TEXT.count("\n") == 7


def test_the_command_writes_a_page_and_tells_the_answer(finished_store: Path, tmp_path: Path) -> None:
    result = run_report("--store", finished_store, "-o", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    assert "configuration hybrid is predicted" in result.output
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_command_gives_one_json_document(finished_store: Path, tmp_path: Path) -> None:
    result = run_report("--store", finished_store, "-o", tmp_path / "r", "--format", "md", "--json")
    document = json.loads(result.output)
    assert document["run"] == RUN_ID and document["format"] == "md" and document["warning"] == ""
    assert document["answer"].startswith("For the workload pgbench")


def test_csv_of_samples_has_a_row_for_every_sample(finished_store: Path) -> None:
    result = run_report("--store", finished_store, "-o", "-", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.output)))
    samples = [s for group in example_samples() for s in group]
    assert len(rows) == len(samples)
    for row, sample in zip(rows, samples, strict=True):
        assert row["state"] == sample.state and row["reason"] == sample.reason
        assert (row["iops"] == "") == (sample.metrics is None)
        assert (row["target"], row["simulated"]) == ("lab:default", "false")
        if sample.metrics is not None:
            assert float(row["iops"]) == sample.metrics.iops
            assert float(row["latency_p99_ns"]) == sample.metrics.latency_percentiles_ns[99.0]


def test_csv_of_baselines_is_what_map_takes(finished_store: Path, tmp_path: Path) -> None:
    path = tmp_path / "baselines.csv"
    assert run_report("--store", finished_store, "-o", path, "--what", "baselines").exit_code == 0
    assert baseline_csv.read(path).cells == open_baselines(finished_store).cells


def test_csv_of_predictions(finished_store: Path) -> None:
    result = run_report("--store", finished_store, "-o", "-", "--format", "csv", "--what", "predictions")
    rows = list(csv.DictReader(io.StringIO(result.output)))
    expected = predictor("time").predict(example_profile(), open_baselines(finished_store))
    assert [row["configuration"] for row in rows] == [p.configuration for p in expected.predictions]
    assert [float(row["relative"]) for row in rows] == [p.relative for p in expected.predictions]


def test_what_cannot_be_written_is_said(finished_store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Store.open(tmp_path / "bare.db", create=True) as store:
        fill(store, documents=False)
    for arguments, said in (
        (("--store", finished_store, "-o", tmp_path / "report.pdf"), "cannot infer the format from the file name"),
        (("--store", finished_store, "-o", tmp_path / "file" / "r.html"), "does not exist"),
        (("--store", finished_store, "-o", "-", "--format", "md", "--json"), "cannot both go"),
        (("--store", tmp_path / "none.db", "-o", tmp_path / "r.html"), "no store of results"),
        (("--store", finished_store, "--run", "x", "-o", tmp_path / "r.html"), "there is no run 'x'"),
        (
            ("--store", tmp_path / "bare.db", "-o", tmp_path / "r.csv", "--what", "predictions"),
            "no predictions yet",
        ),
    ):
        result = run_report(*arguments)
        assert isinstance(result.exception, CephfitError), result.output
        assert said in str(result.exception)


def test_a_document_of_another_version_is_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "r.db", create=True) as store:
        store.add_run(example_run())
        store.put_document(RUN_ID, "predictions", {"schema_version": 7})
        with pytest.raises(InputError, match=f"run {RUN_ID}: predictions: schema_version is 7"):
            read_findings(store)


def test_a_name_comes_with_what_it_stands_for(findings: Findings) -> None:
    """A planner who reads `hybrid` must not have to look for the sweep file."""
    sets = settings_of(findings.applied)
    assert sets["A"] == sets["A-again"] == ""
    report = report_of(findings, made_ns=0)
    assert report.ranking is not None
    assert {row.configuration: row.sets for row in report.ranking.rows} == sets
    assert sets["hybrid"] in to_html(report) and sets["hybrid"].replace("_", r"\_") in to_markdown(report)


def test_settings_are_named_by_scope_and_many_are_counted() -> None:
    read_back = {
        **{"pool/pool/crush_rule = ssd": "", "pool/image/features = a,b": "", "ceph/osd/osd_x = 4M": ""},
        "greater/osd_disk/class:ssd/scheduler = none": "",
    }
    said = settings_of([(0, Applied("B", True, (), read_back))])["B"]
    assert said == "osd: osd_x = 4M, osd_disk/class:ssd: scheduler = none, image: features = a,b, crush_rule = ssd"
    many = {f"ceph/osd/o{i} = 1": "" for i in range(9)}
    assert settings_of([(0, Applied("B", True, (), many))])["B"].endswith("osd: o5 = 1 and 3 more")


def test_a_sweep_without_a_workload_says_how_to_go_on(findings: Findings) -> None:
    alone = replace(findings, predictions=None, assessment=None, profile=None)
    (sentence,) = report_of(alone, made_ns=0).answer.sentences
    assert f"`cephfit map PROFILE --baselines {findings.store}`" in sentence


def test_two_floors_have_two_names(findings: Findings) -> None:
    """What the sweep could show, and how far the default was from itself: both were called the noise floor."""
    text = to_markdown(report_of(findings, made_ns=0))
    assert text.count("cannot be detected (the noise floor)") == 1
    assert "The A/A control (the default measured a second time under another name)" in text
    assert "Noise floor as measured" not in text


def test_counts_and_shares_in_markdown_are_distinguished(findings: Findings) -> None:
    text = to_markdown(report_of(findings, made_ns=0))
    assert "Each field has the number of accesses and, in brackets, their share." in text
    assert "; |" not in text, "no list ends in its separator"


def test_a_histogram_says_what_its_per_cents_are_of(findings: Findings) -> None:
    report = report_of(findings, made_ns=0)
    assert report.histograms
    assert to_html(report).count(" % of the accesses</text>") == len(report.histograms)


def test_a_region_that_is_read_aloud_has_the_name_that_is_seen(findings: Findings) -> None:
    failed = [replace(sample, state=State.FAILED, reason="fio: no space") for sample in findings.samples[:1]]
    html = to_html(
        report_of(replace(findings, samples=SampleColumns.of((*failed, *findings.samples[1:]))), made_ns=0)
    )
    section = html[html.index('<section aria-labelledby="method">') :]
    parts = re.findall(r"<details[^>]*><summary>([^<]*?) <span>[^<]*</span></summary>(<div[^>]*>)", section)
    assert "Rejected samples" in dict(parts)
    for seen, region in parts:
        assert f'aria-label="{seen}"' in region

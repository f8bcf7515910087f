"""`cephfit map`: predict every configuration for a workload profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import (
    Finite,
    baselines_option,
    confidence_option,
    load_option,
    model_option,
    predicted_clients_option,
    run_option,
)
from cephfit.cli.options.completers import runs, stores
from cephfit.cli.output import OUTPUT_FILE, json_option, print_json
from cephfit.cli.predict.map_output import by_cost_of_pools, objective_options, print_answers, wanted_of
from cephfit.core.values.prediction import model_called
from cephfit.core.values.sample import PREDICTIONS_DOCUMENT, PROFILE_DOCUMENT
from cephfit.operations.ranking import Ranked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cephfit.core.errors import InputError
    from cephfit.core.protocols import Predictor
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.mapper.extrapolation.distance import Distance

_OPTIONS = (
    click.option(
        "--one-way-ms",
        type=Finite(min=0),
        metavar="MS",
        help="Predict for storage that is MS milliseconds farther away, each way, than where it was measured.",
    ),
    click.option(
        "--rtt-per-access",
        type=Finite(min=0),
        metavar="N",
        help="With a distance: round trips of each access, one after the other.  [default: 1, that of librbd]",
    ),
    click.option(
        "--rtt-per-flush",
        type=Finite(min=0),
        metavar="N",
        help="With a distance: round trips of each flush; 0 for librbd without a cache.  [default: 1]",
    ),
    click.option(
        "--bandwidth-mbit",
        type=Finite(min=0, min_open=True),
        metavar="MBIT",
        help="With a distance: the narrowest link, in 10**6 bits per second.  [default: no limit]",
    ),
    click.option(
        "--loss-pct",
        type=Finite(min=0, max=20),
        metavar="PCT",
        help="With a distance: lost packets in percent, at most 20.  [default: 0]",
    ),
    click.option(
        "--tcp",
        type=click.Choice(("cubic", "reno", "bbr")),
        help="With a loss: the congestion control of the hosts; bbr is not slower after a loss.  [default: cubic]",
    ),
    click.option(
        "--tcp-window",
        metavar="SIZE",
        help="With a distance: bytes that a TCP connection sends before it waits, as 4M.  [default: no limit]",
    ),
    click.option(
        "--connections",
        type=click.IntRange(min=1),
        metavar="N",
        help="With a distance: TCP connections that share the traffic, such as one to each OSD.  [default: 1]",
    ),
    click.option(
        "--write-ack-ms",
        type=Finite(min=0),
        metavar="MS",
        help="With a distance: the storage acknowledges writes from a cache after MS; its disks limit their rate.",
    ),
)


def distance_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command takes them as further keywords, see ``distance_of``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def distance_of(network: Mapping[str, Any]) -> Distance | None:
    """Return the distance that options ask for; None without one.

    Raises:
        UsageError: an option of a distance is given without a distance, a bandwidth or a loss.
    """
    from cephfit.core.units import parse_nbytes
    from cephfit.mapper.extrapolation.distance import Distance

    given = {name: value for name, value in network.items() if value is not None}
    if not given:
        return None
    if not given.keys() & {"one_way_ms", "bandwidth_mbit", "loss_pct"}:
        option = f"--{next(iter(given)).replace('_', '-')}"
        raise click.UsageError(f"{option} needs a distance: add --one-way-ms")
    as_fields: dict[str, Any] = {
        "one_way_seconds": given.get("one_way_ms", 0.0) / 1e3,
        "loss": given.get("loss_pct", 0.0) / 100,
        "loss_is_congestion": given.get("tcp") != "bbr",
        "acknowledged_seconds": given["write_ack_ms"] / 1e3 if "write_ack_ms" in given else None,
    }
    as_fields |= {name: given[name] for name in ("rtt_per_access", "rtt_per_flush") if name in given}
    if "bandwidth_mbit" in given:
        as_fields["nbytes_per_s"] = given["bandwidth_mbit"] * 1e6 / 8
    if "tcp_window" in given:
        as_fields["window_nbytes"] = parse_nbytes(given["tcp_window"], where="--tcp-window")
    if "connections" in given:
        as_fields["connections"] = given["connections"]
    return Distance(**as_fields)


@click.command("map", short_help="Predict every configuration for a workload profile.")
@click.argument("profile_file", metavar="PROFILE", type=click.Path(path_type=Path))
@baselines_option
@run_option
@load_option
@predicted_clients_option
@model_option
@confidence_option
@distance_options
@objective_options
@click.option(
    "--learn-from",
    "lessons",
    metavar="STORE|FOLDER",
    shell_complete=stores,
    help="Correct the model by what it missed on workloads that were run on several configurations: a store with "
    "verified runs, or an evaluation folder.",
)
@click.option(
    "--sensitivity",
    "is_varied",
    is_flag=True,
    help="Also predict with other randomness thresholds, each phase alone, and without each kind of access.",
)
@click.option(
    "--save/--no-save", default=None, help="Store the profile and the predictions with the run.  [default: save]"
)
@click.option(
    "--commands", "all_commands", is_flag=True, help="Print all commands that apply the best one, and undo it."
)
@click.option(
    "--with-run",
    "further_runs",
    multiple=True,
    metavar="RUN",
    shell_complete=runs,
    help="Also use this run of the same cluster, such as one that --next proposed, as further rounds.",
)
@click.option(
    "--next", "next_step", is_flag=True, help="Show the single measurement that would change the answer most."
)
@click.option("--combine", is_flag=True, help="Write the sweep that tests combinations of the improvements.")
@click.option("-o", "--output", type=OUTPUT_FILE, help="With --next or --combine: write FILE, a sweep file.")
@json_option
def command(
    profile_file: Path,
    location: str,
    run_id: str | None,
    load: str,
    clients: int | None,
    model: str,
    confidence: float,
    objectives: tuple[str, ...],
    reads_matter: float | None,
    prices: tuple[str, ...],
    placements: tuple[str, ...],
    lessons: str | None,
    is_varied: bool,
    save: bool | None,
    all_commands: bool,
    further_runs: tuple[str, ...],
    next_step: bool,
    combine: bool,
    output: Path | None,
    as_json: bool,
    **network: Any,
) -> None:
    """Rank the configurations of a sweep for the workload in PROFILE, best to worst, the default = 100.

    PROFILE comes from `cephfit trace profile`, or is a bundled example, such as
    `example:pgbench`; STORE comes from `cephfit sweep run`. A CSV has the columns configuration, size, pattern,
    client, run, iops, and may have iodepth, clients, sync, align, load.

    With --next or --combine it proposes what to measure next instead, and saves nothing. With --one-way-ms it
    predicts for storage that is farther away than where it was measured.
    """
    from cephfit.cli.predict.map_output import print_predictions, print_sensitivity
    from cephfit.cli.predict.map_prediction import Measurement, predict
    from cephfit.core.profile_files import read_profile
    from cephfit.core.values.fit import fit_of
    from cephfit.mapper import predictor
    from cephfit.mapper.absolute_rates.supply import supply_or_reason
    from cephfit.mapper.decisions.sensitivity import sensitivity_of
    from cephfit.operations.recommended import echo_use, if_applicable
    from cephfit.results.report.run_notes import may_be_unfinished, run_document, run_notes
    from cephfit.results.tables.baseline_csv import is_store

    options = {
        "--next": next_step,
        "--combine": combine,
        "--learn-from": lessons,
        "--with-run": further_runs,
        "--objective": objectives,
        "--reads-matter": reads_matter,
        "--price": prices,
        "--placement": placements,
        "--sensitivity": is_varied,
        "--commands": all_commands,
    }
    given = [name for name, value in options.items() if value]
    distance = distance_of(network)
    _refuse_contradictions(given, for_clients=clients is not None, output=output, save=save)
    if distance is not None:
        _refuse_at_distance(given, for_clients=clients is not None, save=save)
    wanted = wanted_of(objectives, reads_matter, prices, placements)
    profile = read_profile(profile_file)
    stored = is_store(location)
    if save and not stored:
        raise click.UsageError("--save needs a store; predictions cannot be saved in a CSV file")
    model_predictor = (
        predictor(model, confidence=confidence, with_error=True)
        if lessons is None
        else _learned(lessons, model, confidence)
    )
    if save:
        _refuse_read_only(location)
    measured = run_document(location, run_id)
    run_id = measured["run"] or run_id  # the newest now, even if another run begins meanwhile
    measurement = Measurement(location, run_id, load, further_runs)
    with may_be_unfinished(measured):
        if next_step or combine:
            asked = measurement.question(profile, measurement.baselines(), load, model, confidence)
            _propose(asked, profile_file, output, combine=combine, as_json=as_json)
            return
        predicted = predict(model_predictor, profile, measurement, clients, distance)
        if save and predicted.load is None:
            raise click.UsageError("--save: predictions by the scaling law belong to no load of the run")
        if predicted.preface and not as_json:
            click.echo(predicted.preface)
        profile, baselines, predictions = predicted.profile, predicted.baselines, predicted.predictions
        asked = measurement.question(profile, baselines, predicted.load or load, model, confidence)
        answers = asked.answers(wanted, by_cost_of_pools)
    supply = supply_or_reason(profile, baselines, confidence=confidence).for_machines(clients or 1)
    varied = sensitivity_of(model_predictor, profile, baselines, predictions) if is_varied else None
    if stored and predicted.load is not None and save is not False and lessons is None:
        _save(location, run_id, predicted.load, profile, predictions)
    found = [if_applicable(name, location, run_id) for name in answers.recommended(predictions.best)]
    uses = [use for use in found if use is not None]
    if as_json:
        document = {
            **predicted.document,
            "measured": measured,
            **supply.to_json(),
            "fit": fit_of(supply).to_json(),
            **answers.to_json(),
            **({} if varied is None else {"sensitivity": varied.to_json()}),
        }
        print_json({**document, "use": uses[0].to_json() if len(found) == 1 and uses else None})
        return
    print_answers(answers, confidence)
    print_predictions(predictions, run_notes(measured), supply)
    if varied is not None:
        print_sensitivity(varied)
    for use in uses:
        echo_use(use, click.echo, all_commands=all_commands)


def _propose(asked: Ranked, profile_file: Path, output: Path | None, *, combine: bool, as_json: bool) -> None:
    """Show what to measure next."""
    from cephfit.cli.predict.map_combine import show_combinations
    from cephfit.cli.predict.map_next import show_next
    from cephfit.cli.predict.map_prediction import MeasuredRun

    its_run = MeasuredRun.of(asked.location, asked.run_id)
    if combine:
        show_combinations(asked, its_run, output, as_json=as_json)
    else:
        show_next(profile_file, asked, its_run, output, as_json=as_json)


_PROPOSALS = ("--next", "--combine")
_OF_RANKING = ("--objective", "--reads-matter", "--price", "--placement", "--sensitivity", "--commands")
_UNSAVED = (*_PROPOSALS, "--learn-from")
_NOT_FOR_CLIENTS = (*_PROPOSALS, "--with-run", "--objective", "--reads-matter")
_NOT_AT_DISTANCE = (*_PROPOSALS, "--learn-from", "--objective", "--reads-matter", "--price", "--placement")


def _refuse_contradictions(
    given: Sequence[str], *, for_clients: bool, output: Path | None, save: bool | None
) -> None:
    """Refuse options that contradict each other; ``given``: the names of those that are set.

    Raises:
        UsageError: they do.
    """

    def of(names: Sequence[str]) -> list[str]:
        return [name for name in given if name in names]

    proposals = of(_PROPOSALS)
    if len(proposals) > 1:
        raise click.UsageError("--next and --combine are two questions: give one of them")
    if proposals and (ranking := of(_OF_RANKING)):
        raise click.UsageError(
            f"{proposals[0]} shows no ranking, so {ranking[0]} has no effect: omit {ranking[0]}, or {proposals[0]}"
        )
    if output is not None and not proposals:
        raise click.UsageError("-o writes a sweep file: add --next or --combine")
    if save and (unsaved := of(_UNSAVED)):
        raise click.UsageError(f"with {unsaved[0]} nothing is saved: omit --save, or {unsaved[0]}")
    if for_clients and (alone := of(_NOT_FOR_CLIENTS)):
        raise click.UsageError(f"--clients cannot be combined with {alone[0]}")


def _refuse_at_distance(given: Sequence[str], *, for_clients: bool, save: bool | None) -> None:
    """Refuse options that need what was measured, not what is predicted for a distance.

    Raises:
        UsageError: one is among them.
    """
    refused = [*(name for name in given if name in _NOT_AT_DISTANCE), *(["--clients"] if for_clients else [])]
    refused += ["--save"] if save else []
    if refused:
        raise click.UsageError(f"{refused[0]} cannot be combined with a distance (--one-way-ms)")


def _learned(location: str, model: str, confidence: float) -> Predictor:
    """Return the predictor with the learned correction of a model.

    Raises:
        UsageError: the model cannot be corrected.
    """
    from cephfit.cli.check.assess_command import read_evaluation
    from cephfit.mapper.assessment.learned_correction import LearnedPredictor, lessons_from

    if not model_called(model).adds_time:
        raise click.UsageError(f"--learn-from corrects models that add up time, not {model}")
    evaluation = read_evaluation(location)
    if not evaluation.workloads:
        raise _nothing_to_learn(location, evaluation.refused)
    # Where a profile lacks waiting times, the other model answers.
    asked = dict.fromkeys((model, "time"))
    return LearnedPredictor.of(
        {kind: lesson for name in asked for kind, lesson in lessons_from(evaluation.workloads, name).items()},
        confidence,
        model,
    )


def _nothing_to_learn(location: str, refused: Sequence[InputError]) -> InputError:
    from cephfit.core.errors import InputError

    return InputError(
        f"there is no workload to learn from{f': {refused[0].what}' if refused else ''}",
        where=location,
        remedy="run real workloads on all configurations with `cephfit verify --configurations`",
    )


def _refuse_read_only(location: str) -> None:
    """Refuse a store that this user may not write.

    Raises:
        StoreError: the store is read-only, so nothing can be saved in it.
    """
    from cephfit.results.store.sample_store import Store

    Store.open(location, writing=True).close()


def _save(location: str, run_id: str | None, load: str, profile: Profile, predictions: PredictionSet) -> None:
    """Save profile and predictions; say so if they cannot be saved, because the store is read-only."""
    from cephfit.results.store.sample_store import Store, kind_of

    with Store.open(location) as store:
        if reason := store.why_read_only():
            remedy = "give `cephfit report` the profile with --profile"
            click.echo(f"the prediction is not saved: {reason}; {remedy}", err=True)
            return
        run = store.run(run_id)
        store.put_document(run.run_id, kind_of(PROFILE_DOCUMENT, load), profile.to_json())
        store.put_document(run.run_id, kind_of(PREDICTIONS_DOCUMENT, load), predictions.to_json())

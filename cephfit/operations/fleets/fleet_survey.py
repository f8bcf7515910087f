"""Read the I/O of a fleet of images from files, a URL or a live cluster."""

import itertools
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from cephfit.core.errors import InputError
from cephfit.core.protocols import Progress
from cephfit.core.units import MIB, format_seconds
from cephfit.core.values.image_io import MOST_IMAGES, SHORTEST_SECONDS, FleetLoad, IoCounts, Reading, load_between
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.target_choice import cluster_choice

if TYPE_CHECKING:
    from cephfit.core.protocols import CephAdmin
    from cephfit.traces.saved_counters import Scrape

DEFAULT_SECONDS = 60.0
_LIVE_INTERVAL_SECONDS = 10.0
_URL_INTERVAL_SECONDS = 15.0
"""ceph-mgr collects at this interval (its option ``scrape_interval``), and serves the same text in between."""
_TIMEOUT_SECONDS = 30.0
_MOST_NBYTES = 512 * MIB
_EXPLAINED_SHARE = 0.9
"""A note names pools of whose operations the images did a smaller share."""


@dataclass(frozen=True, slots=True)
class SurveyTimes:
    """How long to read counters.

    Attributes:
        seconds: whole time of a live cluster or a URL; None: ``DEFAULT_SECONDS``.
        interval_seconds: between readings; None: by the source.
    """

    seconds: float | None = None
    interval_seconds: float | None = None


def fleet_load(
    sources: Sequence[str], options: ClusterOptions, times: SurveyTimes, progress: Progress
) -> FleetLoad:
    """Return what the images of a cluster did.

    Args:
        sources: ``ceph``, ``ceph:NAME``, ``lab`` or ``lab:NAME``; or a URL; or files.
        options: connection to a live cluster.
        times: for how long to read.
        progress: shows the waiting time.

    Raises:
        InputError: a source cannot be used, or has no I/O of images.
        ClusterError: the cluster does not answer, or does not count images.
        HostError: this machine lacks what the connection needs.
    """
    live = [s for s in sources if s.partition(":")[0] in ("ceph", "lab") and not Path(s).is_file()]
    urls = [s for s in sources if s.lower().startswith(("http://", "https://"))]
    _refuse_credentials(urls)
    if (live or urls) and len(sources) > 1:
        raise InputError(
            "a live cluster or a URL is read several times, so it is the only source",
            where=(live or urls)[0],
            remedy="give it alone, or only files",
        )
    _refuse_unused(live, urls, options, times)
    if live:
        found = _live(live[0], options, times, progress)
    elif urls:
        found = _scraped(urls[0], times, progress)
    else:
        found = _saved(sources, times)
    return _checked(found)


def _refuse_unused(live: Sequence[str], urls: Sequence[str], options: ClusterOptions, times: SurveyTimes) -> None:
    """Refuse options that the source does not use.

    Raises:
        InputError: an option of the command line is one of them.
    """
    is_ceph = any(text.partition(":")[0] == "ceph" for text in live)
    unused = [] if is_ceph else list(options.given())
    if not live and not urls and times.seconds is not None:
        unused.insert(0, "--seconds")
    if not unused:
        return
    kind = "the lab" if live else "a URL" if urls else "saved files"
    raise InputError(
        f"{', '.join(unused)} has no effect on {kind}",
        where="the command line",
        remedy="leave it out"
        + ("; --interval gives the seconds between two files" if "--seconds" in unused else "")
        + ("; connection options are for the source `ceph`" if unused != ["--seconds"] else ""),
    )


def _checked(fleet: FleetLoad) -> FleetLoad:
    """Add a note on I/O that the images do not explain.

    Raises:
        InputError: no image did anything.
    """
    if fleet.counts.operations <= 0:
        raise InputError(
            f"no image did any I/O in {format_seconds(fleet.seconds)}",
            where=fleet.source,
            remedy="read the counters while the images are in use, or for longer with --seconds",
        )
    pools = {name: total for name, total in fleet.totals.items() if name.startswith("pool ")}
    parts = []
    for name, total in sorted(pools.items()):
        own = sum(i.counts.operations for i in fleet.images if f"pool {i.name.pool}" == name)
        parts += [_unexplained(name, own, total.operations)] if own else []
    if not pools and fleet.totals:
        of_osds = sum(total.operations for total in fleet.totals.values())
        parts.append(_unexplained("the whole cluster", fleet.counts.operations, of_osds))
    return replace(fleet, notes=(*fleet.notes, *filter(None, parts)))


def _unexplained(where: str, own: float, total: float) -> str:
    """Return a note on operations that images did not do; empty if they did nearly all."""
    if own >= _EXPLAINED_SHARE * total:
        return ""
    return (
        f"in {where}, the images did {100 * own / total:.0f} % of the clients' operations: the rest is metadata "
        "of images, other clients, or images that were not counted"
    )


def _live(text: str, options: ClusterOptions, times: SurveyTimes, progress: Progress) -> FleetLoad:
    from cephfit.ceph.volumes import LONGEST_INTERVAL_SECONDS, PERIOD_SECONDS, readings

    seconds = times.seconds or DEFAULT_SECONDS
    interval = min(times.interval_seconds or _LIVE_INTERVAL_SECONDS, seconds)
    if interval > LONGEST_INTERVAL_SECONDS:
        raise InputError(
            f"the manager stops counting after a minute without a query, and {interval:g} s are close to that",
            where="--interval",
            remedy=f"use at most {LONGEST_INTERVAL_SECONDS:g} s",
        )
    found: list[Reading] = []
    with closing(_admin(text, options)) as admin:
        progress.start(f"counting the I/O of all images of {text}", seconds)
        for reading in readings(admin, seconds=seconds, interval_seconds=interval):
            progress.advance(interval if found else 0.0)
            found.append(reading)
        progress.done()
    fleet = load_between(found, source=text)
    notes = [*fleet.notes]
    if seconds < 20 * PERIOD_SECONDS:
        notes.append(
            f"OSDs report every {PERIOD_SECONDS:g} s, so rates of {seconds:g} s may be off by "
            f"{100 * PERIOD_SECONDS / seconds:.0f} %: use a longer time with --seconds"
        )
    if not all(reading.is_complete for reading in found):
        notes.append(
            f"the manager lists at most {MOST_IMAGES} images of a pool in each of six orders: less busy images "
            "may be missing; ceph-mgr's module prometheus lists all"
        )
    return replace(fleet, notes=tuple(notes))


def _admin(text: str, options: ClusterOptions) -> "CephAdmin":
    from cephfit.targets.ceph.existing_cluster import open_admin

    kind, _, name = text.partition(":")
    if kind == "ceph":
        return open_admin(cluster_choice(name, options.for_target(text)))
    from cephfit.ceph.admin.rados_admin import RadosAdmin
    from cephfit.lab.cluster import Lab

    return RadosAdmin(Lab.open(name or "default").conf)


def _scraped(url: str, times: SurveyTimes, progress: Progress) -> FleetLoad:
    from cephfit.traces.opening import display_url
    from cephfit.traces.saved_counters import parse_scrape

    where = display_url(url)
    seconds = times.seconds or DEFAULT_SECONDS
    interval = min(times.interval_seconds or _URL_INTERVAL_SECONDS, seconds)
    n = max(1, round(seconds / interval))
    progress.start(f"scraping {where}", seconds)
    found = []
    start = time.monotonic()
    for i in range(n + 1):
        if i:
            time.sleep(max(0.0, start + i * seconds / n - time.monotonic()))
            progress.advance(seconds / n)
        reading = parse_scrape(_content(url, where), where=where).reading
        found.append(replace(reading, seconds=time.monotonic()))
    progress.done()
    fleet = load_between(found, source=where)
    if seconds < 10 * _URL_INTERVAL_SECONDS:
        note = (
            f"ceph-mgr refreshes its counters every {_URL_INTERVAL_SECONDS:g} s by default, so rates of "
            f"{seconds:g} s may be off by {100 * _URL_INTERVAL_SECONDS / seconds:.0f} %: "
            "use a longer time with --seconds"
        )
        return replace(fleet, notes=(*fleet.notes, note))
    return fleet


def _refuse_credentials(urls: Sequence[str]) -> None:
    """Refuse URLs with a user or a password.

    Raises:
        InputError: a URL may have a user or a password.
    """
    # A password may contain the characters that end a host, so that its @ looks like a part of the path.
    if any("@" in url for url in urls):
        raise InputError(
            "a URL with a user or password (with an @) is not accepted: other users of this host could read it",
            where="the URL",
            remedy=f"save scrapes to files, such as with curl --netrc, and give these; {_ADDRESS}",
        )


def _content(url: str, where: str) -> str:
    """Return the text at a URL.

    Raises:
        InputError: it does not answer with the whole of a text.
    """
    try:
        with urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read(_MOST_NBYTES + 1)
            expected = answer.headers.get("Content-Length", "")
    except HTTPException:  # its text may repeat parts of the URL
        raise InputError("the answer is not valid HTTP, or was cut short", where=where, remedy=_ADDRESS) from None
    except OSError as error:
        reason = getattr(error, "reason", "") or error
        raise InputError(f"the address does not answer: {reason}", where=where, remedy=_ADDRESS) from None
    except ValueError:
        raise InputError("this is not a URL", where=where, remedy=_ADDRESS) from None
    if len(content) > _MOST_NBYTES:
        raise InputError(f"the answer has more than {_MOST_NBYTES // MIB} MiB", where=where, remedy=_ADDRESS)
    if expected.isdecimal() and len(content) < int(expected):
        raise InputError(
            f"the answer ended after {len(content)} of {expected} bytes",
            where=where,
            remedy="try again; check ceph-mgr's log and the proxies in between",
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InputError("the answer is not text in UTF-8", where=where, remedy=_ADDRESS) from None


_ADDRESS = (
    "`ceph mgr services` names the address, such as http://MGR:9283/metrics; `ceph mgr module enable prometheus`"
)


def _saved(sources: Sequence[str], times: SurveyTimes) -> FleetLoad:
    from cephfit.traces.saved_counters import documents, load_of, parse_scrape

    texts = [(source, _text_of(source)) for source in sources]
    is_json = [text.lstrip()[:1] in ("[", "{") for _, text in texts]
    if not any(is_json):
        return _between_files([(s, parse_scrape(text, where=s)) for s, text in texts], times.interval_seconds)
    if not all(is_json):
        raise InputError(
            "JSON and the text format of Prometheus cannot be used together",
            where=", ".join(sources),
            remedy="give files of one kind",
        )
    saved: list[tuple[str, Any]] = [(s, document) for s, text in texts for document in documents(text, where=s)]
    return load_of(saved, interval_seconds=times.interval_seconds)


def _text_of(source: str) -> str:
    from cephfit.traces.stream import TraceStream

    if Path(source).is_dir():
        raise InputError(
            "this is a folder", where=source, remedy="give the files in it, the older first: FOLDER/1.prom ..."
        )
    if source != "-" and not Path(source).is_file():
        raise InputError(
            "there is no such file",
            where=source,
            remedy="give ceph, lab, a URL that begins with http:// or https://, or saved files",
        )
    with TraceStream(Path(source)) as stream:
        content = stream.read(_MOST_NBYTES)
    if not content.strip():
        raise InputError(
            "the file is empty", where=source, remedy="save a scrape or the output of `rbd perf` in it"
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InputError(
            "this is not text in UTF-8",
            where=source,
            remedy="give a scrape of ceph-mgr, or JSON of `rbd perf image iostat`",
        ) from None


def _between_files(scrapes: Sequence[tuple[str, "Scrape"]], interval_seconds: float | None) -> FleetLoad:
    """Return the I/O between saved scrapes, in the order of their times."""
    source = ", ".join(name for name, _ in scrapes)
    if interval_seconds is not None:
        readings = [replace(s.reading, seconds=i * interval_seconds) for i, (_, s) in enumerate(scrapes)]
        fleet = load_between(readings, source=source)
        return replace(fleet, notes=(*fleet.notes, *_order_notes(readings)))
    if all(s.is_timed for _, s in scrapes):
        readings = sorted((s.reading for _, s in scrapes), key=_time)
        return load_between(readings, source=source, shortest_seconds=SHORTEST_SECONDS)
    if len(scrapes) > 1 and not all(Path(name).is_file() for name, _ in scrapes):
        raise InputError(
            "the scrapes have no times",
            where=source,
            remedy="give the seconds between two of them with --interval",
        )
    readings = [
        replace(s.reading, seconds=Path(name).stat().st_mtime if len(scrapes) > 1 else 0.0) for name, s in scrapes
    ]
    fleet = load_between(sorted(readings, key=_time), source=source, shortest_seconds=SHORTEST_SECONDS)
    note = (
        f"the scrapes have no times; the {format_seconds(fleet.seconds)} between them are those of the files' "
        "last changes: if the files were copied, give the seconds between two scrapes with --interval"
    )
    return replace(fleet, notes=(*fleet.notes, note))


def _order_notes(readings: Sequence[Reading]) -> list[str]:
    """Return a note on files in the wrong order, which looks like a reset of most counters."""
    for before, after in itertools.pairwise(readings):
        common = [name for name in after.images if before.images.get(name, IoCounts()).operations > 0]
        n = sum(after.images[name].has_fallen(before.images[name]) for name in common)
        if n > len(common) / 2:
            return [
                f"the counters of {n} of {len(common)} images fell between two files: if the manager did not "
                "restart in between, the files are in the wrong order, and all rates are wrong: "
                "give the older first"
            ]
    return []


def _time(reading: Reading) -> float:
    return reading.seconds

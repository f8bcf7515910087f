"""The description of a workload as HTML: its accesses by size bin, its figures, its phases, and notes."""

from collections.abc import Mapping
from typing import Any

from cephfit.core.units import format_seconds
from cephfit.core.values.cells import SIZE_BINS, Op
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import WorkloadDemand, rate_text
from cephfit.results.report.figures.report_figures import histograms_of, workload_figure
from cephfit.results.report.render import environment

FOLDERS = ("server", "report")
"""Folders of ``templates/`` with the templates of the page."""


def described(profile: Profile) -> str:
    """Return the description; every name of the trace is escaped."""
    template = environment(autoescape=True, folders=FOLDERS).get_template("description.html.j2")
    about = profile.description
    return template.render(
        profile=profile,
        rows=_rows(profile),
        facts=_facts(profile),
        workload=workload_figure(profile),
        histograms=histograms_of(profile),
        phases=(about.get("behaviour") or {}).get("phases") or (),
        lacks=about.get("lacks", ()),
        notes=about.get("notes", ()),
        skipped=about.get("skipped", {}),
    )


def _rows(profile: Profile) -> list[dict[str, Any]]:
    """Return the accesses by size bin, and of all sizes."""
    rows: list[dict[str, Any]] = []
    for size in SIZE_BINS:
        by_op = {
            op: (profile.accesses[op][size.name], (profile.random_by_bin or {}).get(op, {}).get(size.name))
            for op in Op
        }
        rows.append({"size": size.name, "by_op": by_op})
    total = {op: (sum(profile.accesses[op].values()), profile.random_share(op)) for op in Op}
    return [*rows, {"size": "all", "by_op": total}]


def _facts(profile: Profile) -> list[tuple[str, str]]:
    """Return what the workload asks for, as text."""
    about: Mapping[str, Any] = profile.description
    demand = WorkloadDemand.of(profile)
    facts = [("accesses", f"{profile.n_accesses:,}")]
    if demand is None:
        return facts
    facts.append(("duration", format_seconds(demand.seconds)))
    facts.append(("accesses per second", rate_text(demand.accesses_per_s)))
    if demand.nbytes_per_s is not None:
        facts.append(("MiB/s", rate_text(demand.nbytes_per_s / (1 << 20))))
    if demand.busiest_second is not None:
        facts.append(("busiest second", f"{rate_text(demand.busiest_second)} accesses"))
    if demand.outstanding is not None:
        facts.append(("outstanding accesses", f"{demand.outstanding:.3g} on average while any was outstanding"))
    if demand.busy_share is not None:
        facts.append(("time with I/O outstanding", f"{100 * demand.busy_share:.3g} %"))
    if about.get("n_disks", 1) > 1:
        facts.append(("disks", str(about["n_disks"])))
    return facts

"""Journal of the resources that this machine created in a cloud and must delete again."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from openstack.connection import Connection

from cephfit.cloud import volume_types
from cephfit.cloud.stacks import Stacks
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import Progress

_STACK, _TYPE = "stack", "volume type"
_RUN, _PROJECT, _AUTH_URL = "run", "project", "auth_url"


class CreatedResources:
    """Stacks and volume types of runs, noted before their creation and until their deletion is complete.

    Each entry names its run, and the project and address of its cloud. If the cloud's name means another project
    now, the resource would not be found there and would be taken for deleted. Journals of earlier versions do not
    name the project.

    Args:
        cloud: connection.
        journal: of this cloud.
        progress: receives a note for each deletion.
        name: of the target, for messages.
    """

    def __init__(self, cloud: Connection, journal: Journal, progress: Progress, *, name: str) -> None:
        self._cloud = cloud
        self._journal = journal
        self._progress = progress
        self._name = name

    def note_stack(self, name: str, run_id: str) -> None:
        """Note a stack that is about to be created."""
        self._journal.note(_STACK, name, self._whose(run_id))

    def note_type(self, name: str, run_id: str) -> None:
        """Note a volume type that is about to be created with its QoS spec."""
        self._journal.note(_TYPE, name, self._whose(run_id))

    def words(self) -> tuple[str, ...]:
        """Return a description of each resource in the journal."""
        types = (f"volume type {entry.place} with its QoS spec" for entry in self._journal.entries(_TYPE))
        return (*(f"stack {entry.place}" for entry in self._journal.entries(_STACK)), *types)

    def require_here(self) -> None:
        """Require that all resources are in the project that the cloud's name means now.

        Raises:
            ClusterError: a resource is in another project.
        """
        here = str(self._cloud.current_project_id or "")
        entries = self._journal.entries()
        for entry in entries:
            project = _noted(entry, _PROJECT)
            if project and here and project != here:
                raise ClusterError(
                    f"{entry.kind} {entry.place} was created in project {project} of {_noted(entry, _AUTH_URL)}, "
                    f"and this cloud's name now means project {here} of {self._auth_url()}",
                    where=self._name,
                    remedy=self._way_out(entries),
                )

    def _way_out(self, entries: Sequence[Entry]) -> str:
        """Return the remedy for a journal of another project, or of several, with a command for each run."""
        homes = {(_run_of(entry), _noted(entry, _PROJECT)): None for entry in entries}
        projects = {project for _, project in homes}
        cleaning = ", ".join(
            f"`cephfit cloud clean {run} --cloud NAME` in project {project or '(not noted)'}"
            for run, project in homes
        )
        which = "that" if len(homes) == 1 else "each of these"
        delete = (
            f"delete what remains, with a NAME of clouds.yaml that means the project: {cleaning}; only when "
            f"{which} has deleted all it found, delete {self._journal.path}"
        )
        if len(projects) > 1:
            return delete
        return (
            "make clouds.yaml or the OS_* variables mean that project again, and run `cephfit restore`; or "
            + delete
        )

    def delete(self, stacks_of: Callable[[str], Stacks]) -> None:
        """Delete all resources in the journal.

        Args:
            stacks_of: returns the stacks of a run.

        Raises:
            ClusterError: a resource cannot be deleted; it stays in the journal.
        """
        stacks = list(self._journal.entries(_STACK))
        for entry in stacks:
            self._progress.note(f"stack {entry.place} is being deleted")
            stacks_of(_run_of(entry)).ask_deletion(entry.place)
        self._forget_each(stacks, lambda entry: stacks_of(_run_of(entry)).delete(entry.place))
        # The volumes of these types were deleted with the stacks.
        types = list(self._journal.entries(_TYPE))
        for entry in types:
            self._progress.note(f"volume type {entry.place} and its QoS spec are being deleted")
        self._forget_each(types, lambda entry: volume_types.delete(self._cloud, _run_of(entry), entry.place))
        self._journal.finish()

    def _forget_each(self, entries: Iterable[Entry], delete: Callable[[Entry], None]) -> None:
        for entry in entries:
            delete(entry)
            self._journal.forget(entry.kind, entry.place)

    def _whose(self, run_id: str) -> dict[str, str]:
        project = str(self._cloud.current_project_id or "")
        return {_RUN: run_id, _PROJECT: project, _AUTH_URL: self._auth_url()}

    def _auth_url(self) -> str:
        return str(self._cloud.config.auth.get("auth_url") or "")


def _run_of(entry: Entry) -> str:
    return _noted(entry, _RUN) or str(entry.was)


def _noted(entry: Entry, key: str) -> str:
    """Return a value of an entry; entries of earlier versions are the run's id alone."""
    was: Any = entry.was
    return str(was.get(key) or "") if isinstance(was, dict) else ""

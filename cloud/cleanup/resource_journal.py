"""What this machine had made in a cloud and must delete again, as its journal knows it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.stacks import Stacks
from cephfit.cloud.volumes import created_types
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import Progress

_STACK, _TYPE = "stack", "volume type"
_RUN, _PROJECT, _AUTH_URL = "run", "project", "auth_url"


class CreatedResources:
    """Stacks and volume types that runs made: in the journal before they are made, until they are gone.

    Each entry says whose it is, and in which project of which cloud: where the cloud's name means another project
    by now, it would not be found, and be taken for gone. Journals of earlier versions do not say the project.

    Args:
        cloud: connection.
        journal: of this cloud.
        progress: hears what is being deleted.
        name: of the target, for messages.
    """

    def __init__(self, cloud: Connection, journal: Journal, progress: Progress, *, name: str) -> None:
        self._cloud = cloud
        self._journal = journal
        self._progress = progress
        self._name = name

    def note_stack(self, name: str, run_id: str) -> None:
        """A stack is about to be made."""
        self._journal.note(_STACK, name, self._whose(run_id))

    def note_type(self, name: str, run_id: str) -> None:
        """A volume type with its QoS spec is about to be made."""
        self._journal.note(_TYPE, name, self._whose(run_id))

    def words(self) -> tuple[str, ...]:
        """What there is, in words."""
        types = (f"volume type {entry.place} with its QoS spec" for entry in self._journal.entries(_TYPE))
        return (*(f"stack {entry.place}" for entry in self._journal.entries(_STACK)), *types)

    def require_here(self) -> None:
        """See that all of it is in the project that the cloud's name means now.

        Raises:
            ClusterError: something is in another one.
        """
        here = str(self._cloud.current_project_id or "")
        entries = self._journal.entries()
        for entry in entries:
            project = _said(entry, _PROJECT)
            if project and here and project != here:
                raise ClusterError(
                    f"{entry.kind} {entry.place} was made in project {project} of {_said(entry, _AUTH_URL)}, and "
                    f"this cloud's name now means project {here} of {self._auth_url()}",
                    where=self._name,
                    remedy=self._way_out(entries),
                )

    def _way_out(self, entries: Sequence[Entry]) -> str:
        """What to do with a journal of another project, or of several: all that is in it is named."""
        homes = {(_run_of(entry), _said(entry, _PROJECT)): None for entry in entries}
        projects = {project for _, project in homes}
        cleaning = ", ".join(
            f"`cephfit cloud clean {run} --cloud NAME` in project {project or '(not noted)'}"
            for run, project in homes
        )
        which = "that" if len(homes) == 1 else "each of these"
        delete = (
            f"delete all that is left, with a NAME of clouds.yaml that means the project: {cleaning}; only when "
            f"{which} has deleted all it found, delete {self._journal.path}"
        )
        if len(projects) > 1:
            return delete
        return (
            "let clouds.yaml or the OS_* variables mean that project again, and run `cephfit restore`; or "
            + delete
        )

    def delete(self, stacks_of: Callable[[str], Stacks]) -> None:
        """Delete all of it.

        Args:
            stacks_of: the stacks of a run.

        Raises:
            ClusterError: something cannot be deleted; it stays in the journal.
        """
        made = list(self._journal.entries(_STACK))
        for entry in made:
            self._progress.note(f"stack {entry.place} is being deleted")
            stacks_of(_run_of(entry)).ask_deletion(entry.place)
        self._forget_each(made, lambda entry: stacks_of(_run_of(entry)).delete(entry.place))
        # Their volumes went with the stacks.
        types = list(self._journal.entries(_TYPE))
        for entry in types:
            self._progress.note(f"volume type {entry.place} and its QoS spec are being deleted")
        self._forget_each(types, lambda entry: created_types.delete(self._cloud, _run_of(entry), entry.place))
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
    return _said(entry, _RUN) or str(entry.was)


def _said(entry: Entry, key: str) -> str:
    """What an entry says; earlier versions kept the run's id alone."""
    was: Any = entry.was
    return str(was.get(key) or "") if isinstance(was, dict) else ""

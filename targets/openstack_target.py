"""OpenStack as a target: many virtual machines, each with its own Cinder volume, or all with one."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from cephfit.cloud import cloud_preflight
from cephfit.cloud.cloud_choice import CloudChoice, require_whole, state_folder
from cephfit.cloud.cloud_cleanup import CreatedResources
from cephfit.cloud.cloud_connection import connect
from cephfit.cloud.cloud_facts import CloudForecast, facts_of, wanted_of
from cephfit.cloud.free_capacity import CinderPool, cinder_pools
from cephfit.cloud.guests import guests
from cephfit.cloud.guests.guest_jobs import Answers
from cephfit.cloud.guests.guest_transport import SERVER, GuestTransport, reached_from
from cephfit.cloud.guests.guests import KnowsPlaces, Place, PlacedEngine, ServerDiagnostics, places_of
from cephfit.cloud.ownership import stack_name
from cephfit.cloud.stacks import Node, Stacks
from cephfit.cloud.volumes import cinder_volumes, volume_types
from cephfit.cloud.volumes.shared_attachments import attach_to_all, require_multiattach
from cephfit.cloud.volumes.volume_types import VolumeKind, volumes_found
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.journal import Journal, TargetLock
from cephfit.core.protocols import Applied, Client, Health, NullProgress, Progress, Target
from cephfit.core.values.configuration import HEALTHY, Configuration, Preview, Undoing
from cephfit.core.values.measurement import PlannedSweep
from cephfit.measure.engine import CountsIo, Engine, MovedBytes
from cephfit.targets import abilities

BENCHMARK, VERIFICATION = "benchmark", "verification"
"""The templates."""


def stack_parameters(
    choice: CloudChoice, template: str, *, volume_type: str, gib: int, count: int, reached_from: str
) -> dict[str, Any]:
    """Return the parameters of a stack, without the run's id.

    Args:
        choice: image, flavor, network and other choices for the guests.
        template: of the stack.
        volume_type: of the guests' volumes.
        gib: size of each volume in GiB.
        count: number of guests.
        reached_from: addresses (CIDR) that may connect to the guests' ports; empty without a network.
    """
    # Which steps a verification takes, `run_guest_jobs` of the target says.
    by_template: dict[str, dict[str, Any]] = {
        VERIFICATION: {"steps": ""},
        BENCHMARK: {"fio_port": choice.port, "user_data": guests.user_data(port=choice.port)},
    }
    return {
        "count": count,
        "image": choice.image,
        "flavor": choice.flavor,
        "network": choice.network,
        "availability_zone": choice.zone,
        "affinity": choice.affinity,
        "key_name": choice.key_name,
        "volume_type": volume_type,
        "volume_size": gib,
        **({"reached_from": reached_from} if reached_from else {}),
        **by_template[template],
    }


_HEALTH_SECONDS = 5.0
"""Minimum time between two queries of the servers' state in Nova."""


class OpenStackTarget(
    Target,
    abilities.MayKeepCaches,
    abilities.JudgesConfigurations,
    abilities.Previews,
    abilities.BringsEngine,
    abilities.ReportsLimits,
    abilities.BelongsToRun,
    abilities.ScalesClients,
    abilities.KeepsNotes,
    abilities.RunsGuestJobs,
    CountsIo,
    KnowsPlaces,
):
    """An OpenStack cloud.

    A configuration chooses the volume type, and may declare QoS. The target creates a stack for each volume type
    (with QoS) and size. Its servers have one volume each. For QoS it creates a volume type for the run. All names
    are in the journal before the resources are created, and all resources carry the run's id. A kill at any moment
    is safe.

    Args:
        choice: cloud, image, flavor, network, volume type of the default.
        for_change: take the lock; all methods except ``facts``, ``health`` and ``unsupported`` require it.
        progress: shows long steps.

    Raises:
        InputError: clouds.yaml does not have the cloud.
        ClusterError: the cloud does not answer, another process uses this target, or resources to delete are in
            another project than the cloud's current one.
    """

    count_source = ServerDiagnostics.count_source
    count_seconds = ServerDiagnostics.count_seconds
    _shares_volume = False
    """Whether all guests of a stack use one volume."""

    def __init__(self, choice: CloudChoice, *, for_change: bool = True, progress: Progress | None = None) -> None:
        self._choice = choice
        self._progress = progress or NullProgress()
        with ExitStack() as opened:
            self._cloud = connect(choice.cloud)
            opened.callback(self._cloud.close)
            self.name = f"openstack:{self._cloud.name}"
            folder = state_folder(choice)
            self._lock: TargetLock | None = None
            if for_change:
                folder.mkdir(parents=True, exist_ok=True)
                self._lock = TargetLock(folder / "lock", self.name)
                opened.callback(self._lock.release)
            journal = Journal(folder / "journal.jsonl", read_only=not for_change)
            self._made = CreatedResources(self._cloud, journal, self._progress, name=self.name)
            if for_change:
                self._made.require_here()
            opened.pop_all()
        self._forecast = CloudForecast(self._cloud, choice)
        self._run_id = ""
        self._nodes: tuple[Node, ...] = ()
        self._n_guests = 0
        self._written_under = ""
        self._clients: tuple[Client, ...] = ()
        self._last_health: tuple[float, Health] | None = None
        self._diagnostics: ServerDiagnostics | None = None
        self._transport = GuestTransport(self._cloud, choice, self, self._progress)
        self._template = BENCHMARK
        self._open_to = choice.reached_from
        self._noted: set[str] = set()

    def begin(self, run_id: str) -> None:
        """See ``BelongsToRun``."""
        self._run_id = run_id

    def engine(self) -> Engine:
        """Return the engine: fio servers in the guests, or jobs through Nova where these are not accessible."""
        return PlacedEngine(self._transport.engine(), self)

    def places(self) -> Mapping[str, Place]:
        """See ``placement.KnowsPlaces``."""
        return places_of(self._cloud, self._nodes)

    def n_guests(self) -> int:
        """See ``placement.KnowsPlaces``."""
        return self._n_guests

    def moved(self, client: Client) -> MovedBytes:
        """See ``engine.CountsIo``."""
        if self._diagnostics is None:
            raise ClusterError("no configuration was applied", where=self.name)
        return self._diagnostics.moved(client)

    def facts(self) -> Mapping[str, Any]:
        return facts_of(self._cloud, self._choice)

    def why_caches_stay(self) -> str:
        return "the caches of a cloud's storage cannot be made cold from its guests"

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """See ``CloudForecast``."""
        return self._forecast.unsupported(configurations)

    def limits(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """See ``ReportsLimits``."""
        return self._forecast.limits(configurations)

    def preview(self, sweep: PlannedSweep) -> Preview:
        """See ``Previews``: volume types and QoS, and the capacity for new data."""
        against = self.unsupported(sweep.configurations)
        configurations = [c for c in sweep.configurations if c.name not in against]
        notes = self._forecast.notes(sweep, configurations, self._pools())
        return Preview(HEALTHY, self._forecast.differences(configurations), {}, 0, 0.0, (), notes=notes)

    def undoings(self) -> Sequence[Undoing]:
        """Return what ``reset`` deletes."""
        return [Undoing(what, "there", "deleted") for what in self._made.words()]

    def require_clients(
        self, configurations: Iterable[Configuration], *, n_clients: int, volume_nbytes: int
    ) -> None:
        """See ``ScalesClients``."""
        self._require(self._forecast.kinds_of(configurations), n_clients=n_clients, nbytes=volume_nbytes)

    def _require(self, kinds: Sequence[VolumeKind], *, n_clients: int, nbytes: int) -> None:
        stacks, gib = self._stacks(self._run_id), cinder_volumes.size_gib(nbytes)
        n_there = [stacks.count(self._stack_of(kind, gib)) for kind in kinds]
        required = wanted_of(kinds, n_clients, n_there, shares_volume=self._shares_volume)
        pools = self._pools() if any(one.n_more for one in required) else None
        found = cloud_preflight.require(self._cloud, self._choice, required, nbytes=nbytes, pools=pools)
        self._note_once(*found.unseen)

    def _pools(self) -> Sequence[CinderPool] | None:
        """Return Cinder's pools with their free capacity; None where this user may not list them."""
        return cinder_pools(self._cloud)

    def _note_once(self, *sentences: str) -> None:
        for sentence in sentences:
            if sentence not in self._noted:
                self._progress.note(sentence)
        self._noted.update(sentences)

    def _stack_of(self, kind: VolumeKind, gib: int) -> str:
        name = f"{kind.label}-{gib}"
        return stack_name(self._run_id, name if self._template == BENCHMARK else f"{name}-{self._template}")

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        self._must_be_for_change()
        if not self._run_id:
            raise ClusterError("no run was begun on this target", where=self.name)
        kind, gib = self._forecast.kind_of(configuration), cinder_volumes.size_gib(volume_nbytes)
        against = self.unsupported([configuration]).get(configuration.name, ())
        if against := against or tuple(filter(None, [kind.why_not(gib)])):
            return Applied(configuration.name, False, against, {})
        self._template = BENCHMARK if fill else VERIFICATION
        volume_type = self._have_guests(kind, n_clients=n_clients, nbytes=volume_nbytes)
        if fill:
            self._fill(volume_type, volume_nbytes)
        values, mismatches = volumes_found(self._cloud, configuration, volume_type, self._nodes)
        seconds = time.monotonic() - started
        return Applied.as_read(configuration, values, mismatches, seconds=seconds)

    def _have_guests(self, kind: VolumeKind, *, n_clients: int, nbytes: int) -> str:
        """Create or scale guests with volumes of a kind as clients; return the name of the volume type."""
        gib = cinder_volumes.size_gib(nbytes)
        name, stacks = self._stack_of(kind, gib), self._stacks(self._run_id)
        n_there = stacks.count(name)
        self._require([kind], n_clients=n_clients, nbytes=nbytes)
        volume_type = self._type_of(kind)
        self._made.note_stack(name, self._run_id)
        # Guests that a smaller load does not need stay, because their volumes are filled already.
        parameters = self._parameters(volume_type, gib, max(n_clients, n_there))
        self._use_guests(stacks, name, parameters, n_clients=n_clients, nbytes=nbytes)
        return volume_type

    def _fill(self, volume_type: str, nbytes: int) -> None:
        """Fill those of the clients' volumes that hold less data than required."""
        under = self._written_under
        if not (empty := cinder_volumes.unfilled(self._cloud, self._nodes_to_fill(), nbytes, under=under)):
            return
        self._before_filling(empty, nbytes)
        self._progress.note(f"filling {len(empty)} volumes of type {volume_type}")
        names = {node.name for node in empty}
        clients = [client for client in self._clients if client.name in names]
        moved = self._transport.moved if self._runs_guest_jobs else None
        cinder_volumes.fill(self._cloud, empty, clients, nbytes, moved=moved, under=under)

    def _type_of(self, kind: VolumeKind) -> str:
        """Return the volume type; create one for the run where the sweep declares QoS."""
        name = kind.type_name(self._run_id)
        if kind.qos:
            self._made.note_type(name, self._run_id)
            volume_types.ensure(self._cloud, self._run_id, name, kind.base, kind.spec(name))
        return name

    def _nodes_to_fill(self) -> Sequence[Node]:
        """Return nodes that together have all volumes."""
        return self._nodes

    def _before_use(self, nodes: Sequence[Node]) -> None:
        """Prepare guests that exist, before they must answer; subclasses may raise."""

    def _before_filling(self, nodes: Sequence[Node], nbytes: int) -> None:
        """Check the volumes before this number of bytes is written to each; subclasses may raise."""

    def _use_guests(
        self, stacks: Stacks, name: str, parameters: Mapping[str, Any], *, n_clients: int, nbytes: int
    ) -> None:
        """Create or scale the guests of a stack, and use them as clients."""
        clients = None
        while clients is None:
            signalling = self._transport.needs_handles(for_guest_jobs=self._runs_guest_jobs)
            nodes = stacks.ensure(name, self._template, {**parameters, "signal_handle": signalling})
            self._n_guests, self._nodes = len(nodes), nodes[:n_clients]
            self._before_use(nodes)
            clients = self._transport.adopt_guests(
                self._nodes, nbytes, stack=name, for_guest_jobs=self._runs_guest_jobs
            )
        self._clients = clients
        if not self._runs_guest_jobs:
            self._diagnostics = ServerDiagnostics(self._cloud, self._nodes)

    def clients(self) -> Sequence[Client]:
        return self._clients

    def drop_caches(self) -> None:
        raise InputError(
            "caches of a cloud's storage cannot be made cold from its guests",
            where=self.name,
            remedy="write `cache: warm` in the sweep file; each volume is then read once before each run",
        )

    def health(self) -> Health:
        """Return whether the servers run, according to Nova; query it every few seconds at most."""
        now = time.monotonic()
        if self._last_health is None or now - self._last_health[0] >= _HEALTH_SECONDS:
            found = guests.health_of(self._cloud, self._nodes, are_rebuilt=self._runs_guest_jobs)
            self._last_health = (now, found)
        return self._last_health[1]

    def run_guest_jobs(self, clients: Sequence[Client], scripts: Mapping[str, str], *, seconds: float) -> Answers:
        """See ``RunsGuestJobs``.

        Raises:
            ClusterError: a guest returned no answer within ``seconds`` and a margin.
        """
        return self._transport.guest_jobs.send(clients, scripts, seconds=seconds)

    def note_on(self, client: Client, key: str) -> str | None:
        """See ``KeepsNotes``: the note is in the volume's metadata, which is deleted with it."""
        return cinder_volumes.note_on(self._cloud, self._node_of(client).volume, key)

    def set_note(self, client: Client, key: str, text: str | None) -> None:
        """See ``KeepsNotes``."""
        cinder_volumes.set_note(self._cloud, self._node_of(client).volume, key, text)

    def _node_of(self, client: Client) -> Node:
        return next(node for node in self._nodes if node.name == client.name)

    @property
    def _runs_guest_jobs(self) -> bool:
        return self._template == VERIFICATION or self._transport.uses_guest_jobs

    def reset(self) -> None:
        self._must_be_for_change()
        self._nodes, self._clients, self._last_health, self._diagnostics = (), (), None, None
        self._made.delete(self._stacks)

    def close(self) -> None:
        self._cloud.close()
        if self._lock is not None:
            self._lock.release()

    def _parameters(self, volume_type: str, gib: int, count: int) -> dict[str, Any]:
        if self._choice.network and not self._open_to:
            found = reached_from(self._cloud, self._choice.network)
            self._open_to = found.cidr
            self._note_once(found.note)
        return stack_parameters(
            self._choice, self._template, volume_type=volume_type, gib=gib, count=count, reached_from=self._open_to
        )

    def _stacks(self, run_id: str) -> Stacks:
        return Stacks(self._cloud, run_id, self._progress)

    def _must_be_for_change(self) -> None:
        if self._lock is None:
            raise ClusterError("this target was opened for reading only", where=self.name)


class SharedVolumeTarget(OpenStackTarget):
    """An ``OpenStackTarget`` with one volume of a multi-attach type, attached to every guest.

    Args:
        choice: see OpenStackTarget. Its guests have a network, on which their fio servers are reached.
        progress: shows long steps.

    Raises:
        InputError: the volume type is not multi-attach, or the guests have no network.
        ClusterError: see OpenStackTarget.
    """

    _shares_volume = True

    def __init__(self, choice: CloudChoice, *, progress: Progress | None = None) -> None:
        require_whole(choice)
        if not choice.network or choice.results not in ("", SERVER):
            raise InputError(
                "guests with a shared volume are measured by their fio servers, which this machine must reach",
                where="--target openstack",
                remedy="add network=NAME to the target, and omit results=",
            )
        super().__init__(replace(choice, results=SERVER), progress=progress)
        try:
            require_multiattach(self._cloud, choice.volume_type)
        except BaseException:
            self.close()
            raise

    def _stack_of(self, kind: VolumeKind, gib: int) -> str:
        return f"{super()._stack_of(kind, gib)}-shared"

    def _parameters(self, volume_type: str, gib: int, count: int) -> dict[str, Any]:
        return {**super()._parameters(volume_type, gib, count), "shared": True}

    def _before_use(self, nodes: Sequence[Node]) -> None:
        self._progress.note(f"attaching volume {nodes[0].volume} to {len(nodes)} servers")
        attach_to_all(self._cloud, nodes[0].volume, [node.server for node in nodes])

    def _nodes_to_fill(self) -> Sequence[Node]:
        return self._nodes[:1]

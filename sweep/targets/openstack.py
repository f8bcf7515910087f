"""OpenStack as a target: many virtual machines, each with a Cinder volume of its own."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cephfit.configuration import Configuration
from cephfit.errors import ClusterError, InputError
from cephfit.protocols import Applied, Client, Health, Progress
from cephfit.silence import Silence
from cephfit.sweep.cloud import beforehand, guests, own_types, volumes
from cephfit.sweep.cloud.choice import CloudChoice, stack_parameters, state_folder
from cephfit.sweep.cloud.cloud_facts import facts_of
from cephfit.sweep.cloud.connection import connect
from cephfit.sweep.cloud.diagnostics import ServerDiagnostics
from cephfit.sweep.cloud.errands import Answers
from cephfit.sweep.cloud.ownership import stack_name
from cephfit.sweep.cloud.placement import Place, PlacedEngine, places_of
from cephfit.sweep.cloud.qos import qos_of_types
from cephfit.sweep.cloud.reach import Reach
from cephfit.sweep.cloud.stacks import Node, Stacks
from cephfit.sweep.cloud.volume_kinds import VolumeKind, is_of_volumes, kind_of, read_back
from cephfit.sweep.engines.engine import Engine, MovedBytes
from cephfit.sweep.journal import Journal
from cephfit.sweep.target_lock import TargetLock

_STACK, _TYPE = "stack", "volume type"
_BENCHMARK, _VERIFICATION = "benchmark", "verification"
_HEALTH_SECONDS = 5.0
"""Nova is asked no more often than this."""


class OpenStackTarget:
    """Implements ``protocols.Target`` and ``JudgesConfigurations`` on an OpenStack cloud.

    A configuration chooses the volume type, and may declare QoS. What it creates: a stack for each type (and QoS)
    and size, of servers with a volume each, and for QoS a volume type of the run's own; their names are in the
    journal before they are made, and everything in them carries the run's id. Any method may be cut off by a kill
    at any instant.

    Args:
        choice: cloud, image, flavour, network, volume type of the default.
        for_change: take the lock; needed by all but ``facts``, ``health`` and ``unsupported``.
        progress: hears what takes long.

    Raises:
        InputError: clouds.yaml does not know the cloud.
        ClusterError: the cloud does not answer, or another process uses this target.
    """

    count_source = ServerDiagnostics.count_source
    count_seconds = ServerDiagnostics.count_seconds

    def __init__(self, choice: CloudChoice, *, for_change: bool = True, progress: Progress | None = None) -> None:
        self._choice = choice
        self._progress = progress or Silence()
        self._cloud = connect(choice.cloud)
        self.name = f"openstack:{self._cloud.name}"
        folder = state_folder(choice)
        self._lock: TargetLock | None = None
        if for_change:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = TargetLock(folder / "lock", self.name)
        self._journal = Journal(folder / "journal.jsonl", read_only=not for_change)
        self._run_id = ""
        self._nodes: tuple[Node, ...] = ()
        self._n_guests = 0
        self._written_under = ""
        self._clients: tuple[Client, ...] = ()
        self._last_health: tuple[float, Health] | None = None
        self._diagnostics: ServerDiagnostics | None = None
        self._reach = Reach(self._cloud, choice, self, self._progress)
        self._template = _BENCHMARK

    def begin(self, run_id: str) -> None:
        """What is made from now on belongs to this run."""
        self._run_id = run_id

    def engine(self) -> Engine:
        """fio's servers in the guests, driven from here; where they cannot be reached, jobs by Nova."""
        return PlacedEngine(self._reach.engine(), self)

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
        """Whatever is not of volumes: the cloud's users cannot reach Ceph. QoS is for administrators only.

        Raises:
            InputError: a volume type that the cloud does not have.
        """
        reasons = {}
        for configuration in configurations:
            against = [
                f"{setting} cannot be set through OpenStack, which lets its users choose only the volume type"
                for setting in configuration.settings
                if not is_of_volumes(setting)
            ]
            if not against:
                kind = self._kind_of(configuration)
                volumes.require_types(self._cloud, [kind.base])
                against = [why] if kind.qos and (why := own_types.why_not_made(self._cloud, kind.base)) else []
            if against:
                reasons[configuration.name] = tuple(against)
        return reasons

    def limits(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """See ``TellsLimits``: the QoS of volume types, and what the sweep declares."""
        found = qos_of_types(self._cloud)
        said = {}
        for configuration in configurations:
            kind = self._kind_of(configuration)
            of_type = found.get(kind.base)
            qos = kind.spec("of the sweep") if kind.qos else of_type.qos if of_type is not None else None
            if qos is not None and (sentence := qos.sentence(kind.base)):
                said[configuration.name] = (sentence,)
        return said

    def require_clients(
        self, configurations: Iterable[Configuration], *, n_clients: int, volume_nbytes: int
    ) -> None:
        """See ``ScalesClients``."""
        kinds = {kind.label: kind for kind in map(self._kind_of, configurations)}
        self._require(list(kinds.values()), n_clients=n_clients, gib=volumes.size_gib(volume_nbytes))

    def _require(self, kinds: Sequence[VolumeKind], *, n_clients: int, gib: int) -> None:
        stacks = self._stacks(self._run_id)
        there = [stacks.count(self._stack_of(kind, gib)) for kind in kinds]
        n_more = sum(max(0, n_clients - n) for n in there)
        types = list(dict.fromkeys(kind.base for kind in kinds))
        beforehand.require(self._cloud, self._choice, types, n_more=n_more, gib=gib)

    def _stack_of(self, kind: VolumeKind, gib: int) -> str:
        name = f"{kind.label}-{gib}"
        return stack_name(self._run_id, name if self._template == _BENCHMARK else f"{name}-{self._template}")

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        self._must_be_for_change()
        if not self._run_id:
            raise ClusterError("no run was begun on this target", where=self.name)
        kind, gib = self._kind_of(configuration), volumes.size_gib(volume_nbytes)
        against = self.unsupported([configuration]).get(configuration.name, ())
        if against := against or tuple(filter(None, [kind.why_not(gib)])):
            return Applied(configuration.name, False, against, {})
        self._template = _BENCHMARK if fill else _VERIFICATION
        name = self._stack_of(kind, gib)
        stacks = self._stacks(self._run_id)
        n_there = stacks.count(name)
        self._require([kind], n_clients=n_clients, gib=gib)
        volume_type = self._type_of(kind)
        self._journal.note(_STACK, name, self._run_id)
        # Guests that a smaller load leaves idle stay: their volumes are filled already.
        parameters = self._parameters(volume_type, gib, max(n_clients, n_there))
        nodes = self._take_up(stacks, name, parameters, n_clients=n_clients, nbytes=volume_nbytes)
        if fill and (empty := volumes.unfilled(self._cloud, nodes, volume_nbytes, under=self._written_under)):
            self._progress.note(f"filling {len(empty)} volumes of type {volume_type}")
            names = {node.name for node in empty}
            clients = [client for client in self._clients if client.name in names]
            moved = self._reach.moved if self._is_for_errands else None
            under = self._written_under
            volumes.fill(self._cloud, empty, clients, volume_nbytes, moved=moved, under=under)
        found = {node.name: volumes.type_of(self._cloud, node.volume) for node in self._nodes}
        qos = qos_of_types(self._cloud)[volume_type]
        values, mismatches = read_back(configuration, qos.qos)
        mismatches += [
            f"a volume is of type {t}, not {volume_type}" for t in sorted({*found.values()}) if t != volume_type
        ]
        if configuration.settings:
            values[f"pool/volume/type = {volume_type}"] = found
        values[f"QoS of volume type {volume_type}"] = {"cinder": qos.to_json()}
        seconds = time.monotonic() - started
        return Applied(configuration.name, not mismatches, tuple(mismatches), values, (), seconds)

    def _type_of(self, kind: VolumeKind) -> str:
        """The volume type; one of the run's own is made where the sweep declares QoS."""
        name = kind.type_name(self._run_id)
        if kind.qos:
            self._journal.note(_TYPE, name, self._run_id)
            own_types.ensure(self._cloud, self._run_id, name, kind.base, kind.spec(name))
        return name

    def _kind_of(self, configuration: Configuration) -> VolumeKind:
        return kind_of(configuration, default=self._choice.volume_type)

    def _take_up(
        self, stacks: Stacks, name: str, parameters: Mapping[str, Any], *, n_clients: int, nbytes: int
    ) -> Sequence[Node]:
        """The guests of a stack, made or scaled, become the clients."""
        clients = None
        while clients is None:
            signalling = self._reach.wants_handles(for_errands=self._is_for_errands)
            there = stacks.ensure(name, self._template, {**parameters, "signal_handle": signalling})
            self._n_guests, self._nodes = len(there), there[:n_clients]
            clients = self._reach.take_up(self._nodes, nbytes, stack=name, for_errands=self._is_for_errands)
        self._clients = clients
        if not self._is_for_errands:
            self._diagnostics = ServerDiagnostics(self._cloud, self._nodes)
        return self._nodes

    def clients(self) -> Sequence[Client]:
        return self._clients

    def drop_caches(self) -> None:
        raise InputError(
            "caches of a cloud's storage cannot be made cold from its guests",
            where=self.name,
            remedy="write `cache: warm` in the sweep file: every volume is then read once before each run",
        )

    def health(self) -> Health:
        """Whether the servers run, as Nova says; asked every few seconds at most."""
        now = time.monotonic()
        if self._last_health is None or now - self._last_health[0] >= _HEALTH_SECONDS:
            found = guests.health_of(self._cloud, self._nodes, are_rebuilt=self._is_for_errands)
            self._last_health = (now, found)
        return self._last_health[1]

    def errand(self, client: Client, script: str, *, seconds: float) -> Answers:
        """Have a client's guest run a shell script after a boot, with its volume at ``guests.VOLUME``.

        Raises:
            ClusterError: nothing came back within ``seconds`` and some more.
        """
        return self._reach.errands.send([client], {client.name: script}, seconds=seconds)

    def note_on(self, client: Client, key: str) -> str | None:
        """See ``KeepsNotes``: in the volume's metadata, which goes with it."""
        return volumes.note_on(self._cloud, self._node_of(client).volume, key)

    def set_note(self, client: Client, key: str, text: str | None) -> None:
        """See ``KeepsNotes``."""
        volumes.set_note(self._cloud, self._node_of(client).volume, key, text)

    def _node_of(self, client: Client) -> Node:
        return next(node for node in self._nodes if node.name == client.name)

    @property
    def _is_for_errands(self) -> bool:
        return self._template == _VERIFICATION or self._reach.is_by_errands

    def things_made(self) -> tuple[str, ...]:
        """What ``reset`` deletes, in words."""
        types = (f"volume type {entry.place} with its QoS spec" for entry in self._journal.entries(_TYPE))
        return (*(f"stack {entry.place}" for entry in self._journal.entries(_STACK)), *types)

    def reset(self) -> None:
        self._must_be_for_change()
        self._nodes, self._clients, self._last_health, self._diagnostics = (), (), None, None
        made = list(self._journal.entries(_STACK))
        for entry in made:
            self._progress.note(f"stack {entry.place} is being deleted")
            self._stacks(str(entry.was)).ask_deletion(entry.place)
        for entry in made:
            self._stacks(str(entry.was)).delete(entry.place)
            self._journal.forget(_STACK, entry.place)
        # Their volumes went with the stacks.
        for entry in list(self._journal.entries(_TYPE)):
            self._progress.note(f"volume type {entry.place} and its QoS spec are being deleted")
            own_types.delete(self._cloud, str(entry.was), entry.place)
            self._journal.forget(_TYPE, entry.place)
        self._journal.finish()

    def close(self) -> None:
        self._cloud.close()
        if self._lock is not None:
            self._lock.release()

    def _parameters(self, volume_type: str, gib: int, count: int) -> dict[str, Any]:
        port = self._choice.port
        # Which steps a verification takes, `errand` says.
        by_template: dict[str, dict[str, Any]] = {
            _VERIFICATION: {"steps": ""},
            _BENCHMARK: {"fio_port": port, "user_data": guests.user_data(port=port)},
        }
        shared = stack_parameters(self._choice, volume_type=volume_type, gib=gib, count=count)
        return {**shared, **by_template[self._template]}

    def _stacks(self, run_id: str) -> Stacks:
        return Stacks(self._cloud, run_id, self._progress)

    def _must_be_for_change(self) -> None:
        if self._lock is None:
            raise ClusterError("this target was opened for reading only", where=self.name)

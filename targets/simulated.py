"""A simulated cluster with known true rates: for learning the tool without root, and for testing it.

It uses the same runner, files and reports as a real cluster; only fio and Ceph are replaced. Its name and its
samples state that they are simulated.

The true rates come from the model in ``simulated_storage``, whose parameters were fitted to a one-machine lab.
Nothing in it was measured on the user's cluster. The rates are known exactly, so that results can be compared with
them.
"""

import hashlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cephfit import __version__
from cephfit.ceph.crush.data_placement import LAYOUT, RuleLayout
from cephfit.ceph.options.option_catalogue import nearest_option
from cephfit.ceph.options.option_history import histories, history_of, is_gone
from cephfit.core.errors import InputError
from cephfit.core.protocols import Applied, Client, Health, Target
from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import Cell, Op
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration, Partition, Setting
from cephfit.core.values.measurement import PlannedSweep, StepTimes
from cephfit.core.values.sample import SIMULATED, Metrics
from cephfit.core.yaml_lines import nearest
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, Engine, IndependentCount
from cephfit.targets.abilities import (
    BringsEngine,
    ChecksSweep,
    EstimatesStepTimes,
    JudgesConfigurations,
    WarnsOfSettings,
)
from cephfit.targets.simulated_storage import CLASSES_OF_RULES, DEFAULT_COPIES, Access, effect_of, iops


def run_ns(seconds: float) -> int:
    """Return seconds as whole ns."""
    return round(seconds * NS_PER_S)


@dataclass(frozen=True, slots=True)
class Simulation:
    """How the simulated cluster behaves. The defaults have little noise and no faults.

    Attributes:
        seed: of noise and faults.
        noise: coefficient of variation of one client's rate between runs.
        pace: real seconds per second of a run; 0 gives results at once, 1 takes as long as fio.
        unhealthy: fraction of runs during which the cluster is briefly unhealthy.
        miscount: fraction of runs in which the independent counter and "fio" disagree.
        failing: fraction of runs in which a client has no result.
        refuse: name of a configuration with a setting that never takes effect.
        placement: coefficient of variation between volumes, because objects are spread unevenly over the OSDs. It
            multiplies all rates of a volume. A volume belongs to a configuration, a client and a size. A reset
            removes it.
    """

    seed: int = 1
    noise: float = 0.02
    pace: float = 0.0
    unhealthy: float = 0.0
    miscount: float = 0.0
    failing: float = 0.0
    refuse: str = ""
    placement: float = 0.0

    def __post_init__(self) -> None:
        for name in ("unhealthy", "miscount", "failing", "noise", "placement"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"sim:{name}={getattr(self, name)} is not between 0 and 1")
        if not 0 <= self.pace <= 100:
            raise InputError(f"sim:pace={self.pace} is not between 0 and 100")

    def dice(self, *words: object) -> np.random.Generator:
        """Return random numbers that depend only on the seed and ``words``, not on earlier calls."""
        text = "/".join(map(str, (self.seed, *words)))
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))

    def placement_factor(self, configuration: str, client: Client, n_resets: int) -> float:
        """Return the factor of all rates of a client's volume after some resets; 1 if volumes do not differ."""
        after = (n_resets,) if n_resets else ()
        dice = self.dice("volume", configuration, client.name, client.nbytes, *after)
        return float(dice.lognormal(0.0, self.placement))


_DEFAULTS = Simulation()


def simulated_target(text: str) -> "SimulatedTarget":
    """Open ``sim``, or ``sim:noise=0.05,pace=0.1,unhealthy=0.1``.

    Raises:
        InputError: an unknown key or an invalid value.
    """
    _, _, options = text.partition(":")
    known = {field.name: type(getattr(_DEFAULTS, field.name)) for field in fields(Simulation)}
    values: dict[str, Any] = {}
    for part in filter(None, options.split(",")):
        key, _, value = part.partition("=")
        if key not in known:
            raise InputError(f"a simulation has no {key!r}", where=text, remedy=nearest(key, known))
        try:
            values[key] = known[key](value)
        except ValueError:
            raise InputError(
                f"{value!r} is not a value for {key}",
                where=text,
                remedy=f"write it like {key}={getattr(_DEFAULTS, key) or 1}",
            ) from None
    return SimulatedTarget(Simulation(**values), name=text)


class SimulatedTarget(
    Target, ChecksSweep, JudgesConfigurations, BringsEngine, EstimatesStepTimes, WarnsOfSettings
):
    """A Target that changes nothing on this machine."""

    def __init__(self, simulation: Simulation | None = None, *, name: str = "sim") -> None:
        self.name = name
        self.simulation = simulation or Simulation()
        self._clients: tuple[Client, ...] = ()
        self.n_resets = 0
        self._configurations: dict[str, Configuration] = {}
        self._applied: Configuration | None = None
        self._unhealthy_unseen = False

    def facts(self) -> Mapping[str, Any]:
        settings = {field.name: getattr(self.simulation, field.name) for field in fields(Simulation)}
        return {
            "simulated": True,
            "warning": SIMULATED,
            "simulation": settings,
            "versions": {"cephfit": __version__},
            LAYOUT: RuleLayout("hdd", DEFAULT_COPIES, CLASSES_OF_RULES).to_json(),
        }

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return configurations with options that Ceph has removed; the simulation has all others."""
        reasons = {
            c.name: tuple(f"Ceph no longer has the option {s.key}" for s in c.settings if is_gone(s.key))
            for c in configurations
        }
        return {name: why for name, why in reasons.items() if why}

    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return settings without a simulated effect; mark options that no known release of Ceph has."""
        found = {c.name: tuple(_idle(s for s in c.settings if not effect_of(s))) for c in configurations}
        return {name: sentences for name, sentences in found.items() if sentences}

    def check(self, sweep: PlannedSweep) -> None:
        """Check that the sweep has the configuration to refuse; a search names its configurations later.

        Raises:
            InputError: the sweep does not have it.
        """
        refuse, names = self.simulation.refuse, [c.name for c in sweep.configurations]
        if refuse and not sweep.is_search and refuse not in names:
            raise InputError(
                f"the sweep {sweep.name} has no configuration {refuse!r} to refuse",
                where=f"--target {self.name}",
                remedy=nearest(refuse, names),
            )

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        self._applied = configuration
        self._configurations[configuration.name] = configuration
        self._clients = tuple(Client(f"c{i}", {}, volume_nbytes) for i in range(n_clients))
        refused = configuration.settings[:1] if configuration.name == self.simulation.refuse else ()
        return Applied.as_read(
            configuration,
            {str(s): {"simulated": s.value, "effect": effect_of(s) or "none"} for s in configuration.settings},
            [f"{setting} did not take effect (simulated fault)" for setting in refused],
            seconds=time.monotonic() - started,
        )

    def clients(self) -> Sequence[Client]:
        return self._clients

    def drop_caches(self) -> None:
        pass

    def health(self) -> Health:
        if self._unhealthy_unseen:
            self._unhealthy_unseen = False
            return Health(ok=False, reasons=("OSD_DOWN (simulated fault)",), observed={"simulated": True})
        return Health(ok=True, observed={"simulated": True})

    def reset(self) -> None:
        if self._clients:
            self.n_resets += 1
        self._clients, self._applied = (), None

    def close(self) -> None:
        pass

    def engine(self) -> Engine:
        return SimulatedEngine(self)

    def step_times(self) -> StepTimes:
        """Return measured durations: 280 runs take 3 s, nearly all of it in the store."""
        pace = self.simulation.pace
        takes = f", at {pace:g} s for each second of a run" if pace else ""
        return StepTimes(
            apply_seconds=0.01,
            cell_seconds=0.012,
            fill_nbytes_per_s=math.inf,
            source=f"simulated: no volumes, no I/O{takes}",
            warm_nbytes_per_s=math.inf,
            pace=pace,
        )

    def configuration(self, name: str) -> Configuration:
        """Return the last applied configuration with this name."""
        return self._configurations.get(name, Configuration(DEFAULT_CONFIGURATION))

    @property
    def applied(self) -> Configuration | None:
        """The configuration that is applied now; None without one."""
        return self._applied

    def become_unhealthy(self) -> None:
        """Report an unhealthy state at the next call of ``health``."""
        self._unhealthy_unseen = True


def _idle(settings: Iterable[Setting]) -> Iterator[str]:
    """Yield one sentence for all settings of real clusters, and one for each option that no release has."""
    idle = [s for s in settings if not is_gone(s.key)]
    unknown = [s.key for s in idle if s.partition is Partition.CEPH and history_of(s.key) is None]
    if known := list(dict.fromkeys(s.key for s in idle if s.key not in unknown)):
        yield f"{', '.join(known)}: no effect in the simulation"
    for key in dict.fromkeys(unknown):
        hint = nearest_option(key, histories())
        yield f"{key}{hint and f' ({hint})'}: no effect in the simulation, and no known release of Ceph has it"


class SimulatedEngine(Engine):
    """Measures the true rates of a simulated target with seeded noise.

    A run's outcome depends only on seed, configuration, cell, repeat and attempt. So an interrupted sweep gives
    the same samples as an uninterrupted one.
    """

    def __init__(self, target: SimulatedTarget) -> None:
        self._target = target

    def facts(self) -> Mapping[str, Any]:
        return {"name": "simulation", "version": __version__, "warning": SIMULATED}

    def warm(self, run: CellRun) -> None:
        pass

    def run(self, run: CellRun) -> CellOutcome:
        simulation = self._target.simulation
        words = (run.configuration, run.cell, run.repeat, run.attempt)
        dice = simulation.dice(*words, *([run.load] if run.load else []))
        unhealthy, miscounts, fails = (
            dice.random() < share for share in (simulation.unhealthy, simulation.miscount, simulation.failing)
        )
        if unhealthy:
            self._target.become_unhealthy()
        time.sleep(simulation.pace * (run.measurement.ramp_seconds + run.measurement.run_seconds))
        outcomes = {}
        for number, client in enumerate(run.clients):
            if fails and number == 0:
                outcomes[client.name] = ClientOutcome(None, "no result (simulated fault)")
            else:
                outcomes[client.name] = self._measure(run, client, dice, miscounts=bool(miscounts))
        return CellOutcome(outcomes, fio_json=None)

    def _truth(self, run: CellRun) -> float:
        """Return one client's IOPS in the cell's own direction: times of a mix add up, a rate limit holds."""
        measurement = run.measurement

        def alone(cell: Cell) -> float:
            size, m = cell.size.benchmark_nbytes, measurement
            return iops(
                self._target.configuration(run.configuration),
                Access(size, cell.pattern, m.iodepth, m.align_nbytes, m.sync),
                n_clients=m.n_clients,
                window_seconds=(m.ramp_seconds, m.run_seconds),
            )

        limit = measurement.rate_iops or math.inf
        if measurement.rate_nbytes_per_s is not None:
            limit = measurement.rate_nbytes_per_s / run.cell.size.benchmark_nbytes
        if measurement.read_pct is None:
            return min(limit, alone(run.cell))
        reads = measurement.read_pct / 100
        kinds = ("randread", "randwrite") if run.cell.pattern.is_random else ("read", "write")
        read, write = (alone(Cell.parse(f"{run.cell.size.name}-{kind}")) for kind in kinds)
        both = min(limit, 1 / (reads / read + (1 - reads) / write))
        return both * (reads if run.cell.pattern.op is Op.READ else 1 - reads)

    def _measure(
        self, run: CellRun, client: Client, dice: np.random.Generator, *, miscounts: bool
    ) -> ClientOutcome:
        measurement = run.measurement
        truth = self._truth(run) * self._target.simulation.placement_factor(
            run.configuration, client, self._target.n_resets
        )
        measured = truth * float(dice.lognormal(0.0, self._target.simulation.noise))
        block = run.cell.size.benchmark_nbytes
        # As in fio, a run of a slow cell lasts until its first I/O completes.
        seconds = max(measurement.run_seconds, 1 / measured)
        latency_ns = measurement.iodepth / measured * 1e9
        metrics = Metrics(
            iops=measured,
            nbytes_per_s=measured * block,
            n_ios=max(1, round(measured * seconds)),
            runtime_ns=run_ns(seconds),
            latency_mean_ns=latency_ns,
            latency_percentiles_ns={50.0: 0.9 * latency_ns, 99.0: 2.2 * latency_ns},
        )
        moved = measured * block * seconds
        total = round(moved * (1 + measurement.ramp_seconds / measurement.run_seconds)) + block
        count = IndependentCount(
            source="the simulated counter",
            window_nbytes=moved * (1.5 if miscounts else 1.0),
            total_nbytes=total,
            allowed_nbytes=0.02 * moved,
        )
        return ClientOutcome(metrics, count=count, evidence={"simulated": True, "true_iops": truth})

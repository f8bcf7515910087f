"""The scope `client_network`: applied, read back, put back, and refused where no such path exists."""

from pathlib import Path

from cephfit.ceph.environment.host_settings import HostSettings
from cephfit.ceph.environment.network_emulation import Emulation
from cephfit.ceph.environment.scopes import fault_of_key, fault_of_scope, fault_of_value
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.options.option import risk_of
from cephfit.core.journal import Journal
from cephfit.core.values.configuration import Configuration, Partition, Setting

DELAY = Setting(Partition.GREATER, "client_network", "delay_ms", 8)
LOSS = Setting(Partition.GREATER, "client_network", "loss_pct", 0.5)


class RememberingPath:
    """A path that keeps its values; ``stuck``: it does not take new ones."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.values = Emulation()
        self._stuck = stuck

    def set(self, values: Emulation) -> None:
        if not self._stuck:
            self.values = values

    def measured(self) -> tuple[Emulation, str]:
        return self.values, "round trip 16.1 ms"


def settings_with(path: RememberingPath | None, folder: Path) -> HostSettings:
    return HostSettings(Hosts(all_local=True), Journal(folder / "journal"), osds=tuple, client_path=path)


def configuration(*settings: Setting) -> Configuration:
    return Configuration("far", settings)


def test_values_are_applied_and_a_configuration_without_them_has_no_distance(tmp_path: Path) -> None:
    path = RememberingPath()
    greater = settings_with(path, tmp_path)
    greater.apply(configuration(DELAY, LOSS), ())
    assert path.values == Emulation(delay_ms=8, loss_pct=0.5)
    values, mismatches = greater.read_back(configuration(DELAY, LOSS), ())
    assert mismatches == []
    assert values[str(DELAY)] == {"clients' network": 8.0, "measured by a client": "round trip 16.1 ms"}
    greater.apply(configuration(), ())
    assert path.values == Emulation()


def test_a_value_that_did_not_take_effect_is_a_mismatch(tmp_path: Path) -> None:
    greater = settings_with(RememberingPath(stuck=True), tmp_path)
    greater.apply(configuration(DELAY), ())
    _, mismatches = greater.read_back(configuration(DELAY), ())
    assert len(mismatches) == 1
    assert "clients' network" in mismatches[0]


def test_restore_removes_the_distance(tmp_path: Path) -> None:
    path = RememberingPath()
    greater = settings_with(path, tmp_path)
    greater.apply(configuration(DELAY), ())
    greater.restore()
    assert path.values == Emulation()


def test_without_such_a_path_the_reason_names_what_is_missing(tmp_path: Path) -> None:
    assert "lab up --client-network" in settings_with(None, tmp_path).why_not(DELAY)
    assert settings_with(RememberingPath(), tmp_path).why_not(DELAY) == ""


def test_the_scope_is_known_and_needs_no_risk_to_be_accepted() -> None:
    assert fault_of_scope("client_network") == ""
    assert "takes no mask" in fault_of_scope("client_network/class:hdd")
    assert fault_of_key("client_network", "rate_mbit") == ""
    assert "no key" in fault_of_key("client_network", "mtu")
    assert "cannot be" in fault_of_value("client_network", "loss_pct", 100)
    assert risk_of(DELAY) is None
    assert risk_of(Setting(Partition.GREATER, "network", "delay_ms", 8)) is not None

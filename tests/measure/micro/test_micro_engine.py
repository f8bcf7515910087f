"""What the engine makes of the clients' figures."""

from cephfit.core.values.sample import Metrics
from cephfit.measure.engine import ClientOutcome
from cephfit.measure.micro.file_places import Traffic
from cephfit.measure.micro.micro_engine import _with_traffic


def test_the_traffic_is_kept_with_the_first_client_and_its_doubt_stays() -> None:
    metrics = Metrics(1.0, 1.0, 1, 1, 1.0, {})
    outcomes = {name: ClientOutcome(metrics, uncounted="why", doubt=f"of {name}") for name in ("c0", "c1")}
    found = _with_traffic(outcomes, Traffic(1000, None, 5))
    assert [one.doubt for one in found.values()] == ["of c0", "of c1"]
    assert found["c0"].evidence["moved"]["wire_nbytes"] == 1000
    assert found["c1"] == outcomes["c1"]

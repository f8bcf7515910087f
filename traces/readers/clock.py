"""How fine the clock of a text is: by the digits with which it prints times."""

from collections.abc import Iterable

from cephfit.units import NS_PER_MS


def clock_ns_of(times: Iterable[bytes], unit_ns: int) -> int:
    """The smallest difference that decimal numbers of ``unit_ns`` tell, in ns: that of the one with most digits
    behind the point. 1 where there are none of them, and where it would be 1 ms or more but not all have equally
    many digits: a writer that leaves zeros out may yet have more of them."""
    n_digits = {len(text.strip().partition(b".")[2]) for text in times}
    step_ns = max(unit_ns // 10 ** max(n_digits), 1) if n_digits else 1
    return 1 if step_ns >= NS_PER_MS and len(n_digits) > 1 else step_ns

"""How fine the clock of a text is: by the digits with which it prints times."""

from collections.abc import Iterable


def clock_ns_of(times: Iterable[bytes], unit_ns: int) -> int:
    """The smallest difference that decimal numbers of ``unit_ns`` tell, in ns: that of the one with most digits
    behind the point. 1 where there are none of them."""
    n_digits = [len(text.strip().partition(b".")[2]) for text in times]
    return max(unit_ns // 10 ** max(n_digits), 1) if n_digits else 1

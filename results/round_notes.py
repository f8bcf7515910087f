"""Which rounds a report's figures are of, where not all configurations were measured in the same ones. Pure."""

from cephfit.baseline import Baselines
from cephfit.blocks import Table

OF_CELLS = (
    "Not all configurations were measured in the same rounds. Rates and latencies are means over all rounds of "
    "each; a ratio to the default is of the rounds that both have, or that a third one connects, and need not be "
    "the quotient of the two rates. Where nothing connects them it is that quotient, and has no interval."
)
OF_WORKLOADS = (
    "Not all configurations were measured in the same rounds: the default's rate is of all rounds of the default, "
    "and that of another configuration is this rate times its ratio to the default in the rounds that both have, "
    "or that a third one connects."
)


def same_rounds(baselines: Baselines) -> bool:
    """Whether, in each cell, all configurations that have figures have them from the same rounds."""
    return all(blocks.whole for blocks in Table.of(baselines, baselines.configurations).blocks)

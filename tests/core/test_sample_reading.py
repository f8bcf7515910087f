"""The garbage collector is paused for a block, and runs again afterwards."""

import gc

import pytest

from cephfit.core.values.sample import without_collector


def test_it_runs_again_after_the_block_also_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError), without_collector():
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()


def test_blocks_inside_of_each_other_pause_it_until_the_outer_one_ends() -> None:
    with without_collector():
        with without_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()

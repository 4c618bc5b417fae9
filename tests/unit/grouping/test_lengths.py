from fractions import Fraction

import pytest

from sim.layout.grouping import LengthDistribution
from tests.unit.grouping.buckets import full, limits, mamba, sliding


def test_equal_lengths_add_up_and_common_factors_go():
    made = LengthDistribution.read("131072*2+4096*5+4096")
    assert made.pairs == ((4096, 3), (131072, 1))
    assert (str(made), made.longest, made.num_requests) == ("4096*3+131072", 131072, 4)
    assert LengthDistribution.read(str(made)) == made


@pytest.mark.parametrize("text", ["", "0", "4096*0", "-1", "4096*", "*3", "a", "1.5", "1++2", "²"])
def test_what_is_no_distribution_is_refused(text):
    with pytest.raises(ValueError, match="LENGTH"):
        LengthDistribution.read(text)


def test_mean_blocks_average_over_the_lengths():
    # full: 256 and 8192 blocks; sliding: 4096 / 16 + 1 = 257 and 577; a state is one block
    lengths = LengthDistribution.read("4096*3+131072")
    assert lengths.mean_blocks(full(), limits()) == Fraction(3 * 256 + 8192, 4)
    assert lengths.mean_blocks(sliding(), limits()) == Fraction(3 * 257 + 577, 4)
    assert lengths.mean_blocks(mamba(), limits()) == 1

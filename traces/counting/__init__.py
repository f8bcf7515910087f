"""Count accesses: all histograms in one pass."""

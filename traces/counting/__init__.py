"""Count accesses: all histograms in one pass, and what they ask of the storage by kind."""

"""Whether a sample can be trusted: what is watched while it is taken, and the judgement."""

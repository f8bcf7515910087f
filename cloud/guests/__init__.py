"""Benchmark guests: started, reached, given jobs, located."""

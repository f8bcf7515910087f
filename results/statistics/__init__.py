"""Statistics of samples: baselines, intervals, scaling, comparison."""

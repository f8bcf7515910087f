"""The models: from profiles and baselines to ranked predictions with intervals."""

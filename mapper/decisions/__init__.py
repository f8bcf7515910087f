"""Choices that follow from predictions: a configuration, a pool, or what to measure next."""

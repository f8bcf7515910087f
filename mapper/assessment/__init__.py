"""Predictions compared with runs of real workloads: accuracy, evaluation of models, what is learned from both."""

"""Answers from predictions: for numbers of clients, by objectives, as a configuration to apply."""

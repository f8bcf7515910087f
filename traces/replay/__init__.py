"""Reproduce workloads with fio: job files, I/O logs, replays."""

"""Workloads done again by fio: job files, I/O logs, replays."""

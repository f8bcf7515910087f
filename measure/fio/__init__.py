"""fio as the engine: on this machine and on fio servers."""

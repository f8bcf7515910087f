"""fio as the engine: locally, and on fio servers."""

"""A small image for benchmark guests: Debian's cloud kernel and a file system in memory with fio and SSH."""

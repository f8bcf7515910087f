"""What measures a cell: fio, Ceph's own benchmarks, and the counters that they are held against."""

"""`cephfit trace`: read, capture and replay workload traces."""

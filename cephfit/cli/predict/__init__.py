"""Commands that predict for one workload or several: `cephfit map`, `balance` and `advise`."""

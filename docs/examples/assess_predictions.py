# %% [markdown]
# # How good are the predictions?
#
# Compare configurations as data frames, then compare predictions with what a workload really gave on each
# configuration. This runs on simulated clusters, in seconds; it needs pandas. It writes its files into the current
# folder.

# %%
import sys
from pathlib import Path

import cephfit

PROFILES = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/examples/profiles")
"""The folder with the thesis's profiles."""

# %%
run = cephfit.run_sweep("quick", target="sim", store="results.sqlite")
profile = cephfit.read_profile(PROFILES / "postmark.json")

# %% [markdown]
# ## Configurations as data frames
#
# A row of `Baselines.to_frame()` is one round of one cell: the I/Os per second of all clients together.

# %%
with cephfit.open_store("results.sqlite") as store:
    rates = store.baselines(run).to_frame()
    samples = store.samples(run).to_frame()
print(samples["state"].value_counts())

# %%
rates["cell"] = rates["size"] + "-" + rates["pattern"]
means = rates.pivot_table(index="cell", columns="configuration", values="iops", aggfunc="mean", sort=False)
relative = 100 * means.div(means["A"], axis=0)
print(relative.round(0))

# %%
print("largest gain and loss of each configuration against the default A:")
print(relative.drop(columns="A").agg(["max", "idxmax", "min", "idxmin"]).T)

# %% [markdown]
# ## What the workload really gives
#
# On a real cluster `cephfit verify` runs a workload on the configurations and stores what it gave; then
# `cephfit.assess("results.sqlite")` is all that is needed. Values that were measured by other means go into
# `measured=`: by configuration, one value per round, more is better.
#
# Here the workload is played on a second simulated cluster with other noise: so many accesses of the profile's mix
# per second, if each takes the time that its cell's rate gives.

# %%
other = cephfit.run_sweep("quick", target="sim:seed=2,noise=0.05", store="results.sqlite")
accesses = profile.to_frame().set_index(["size", "pattern"])["accesses"]
played = cephfit.read_baselines("results.sqlite", other).to_frame().set_index(["size", "pattern"])
played["seconds"] = accesses.reindex(played.index) / played["iops"]
seconds = played.groupby(["configuration", "round"], sort=False)["seconds"].sum()
served = (accesses.sum() / seconds).unstack("round")
print(served.round(0))

# %% [markdown]
# ## Predicted and measured

# %%
accuracy = cephfit.assess(
    "results.sqlite",
    run,
    measured={name: list(values) for name, values in served.iterrows()},
    metric="accesses per second",
    profiles=profile,
)
print(accuracy.of("time").to_frame()[["configuration", "predicted", "measured", "ratio", "error_pct", "inside"]])

# %% [markdown]
# The figures of each model: median and 90th percentile of the error, rank correlation, regret, and how many
# measured values are in the predicted intervals.

# %%
print(accuracy.summary().to_frame().set_index("model").T)

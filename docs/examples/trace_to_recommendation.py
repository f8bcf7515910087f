# %% [markdown]
# # From a trace to a recommendation
#
# What does a workload do, and which configuration of Ceph suits it? This runs on a simulated cluster, in seconds
# and without root. On a real cluster only the target changes (docs/clusters.md).
#
# Run it as a script (`python trace_to_recommendation.py`), or cell by cell in an editor that knows `# %%`.
# It writes its files into the current folder.

# %%
import csv
import random
from pathlib import Path

import cephfit

# %% [markdown]
# ## A trace
#
# A recording of a real disk comes from `cephfit trace capture`, `blktrace` and others (docs/formats.md). Here a
# small one is made: three quarters random reads of 8 KiB, the rest a log that is written from beginning to end.

# %%
chance = random.Random(1)
trace = Path("database.csv")
with trace.open("w", newline="") as file:
    rows = csv.writer(file)
    log_offset = 64 << 30
    for number in range(20_000):
        if chance.random() < 0.75:
            rows.writerow([500 * number, "R", 8192 * chance.randrange(4 << 20), 8192])
        else:
            rows.writerow([500 * number, "W", log_offset, 16384])
            log_offset += 16384

# %%
profile = cephfit.profile_trace(trace, name="database", columns="time:us,op:R/W,offset:bytes,length:bytes")
Path("database.json").write_text(profile.dumps())
shares = profile.to_frame().set_index(["size", "pattern"])["share"]
print(shares[shares > 0])

# %% [markdown]
# ## A sweep
#
# Measure the configurations of the bundled sweep `quick`. Stopped at any moment, the same call continues.

# %%
run = cephfit.run_sweep("quick", target="sim", store="results.sqlite")
print(run.run_id, "on", run.target)

# %% [markdown]
# ## The recommendation
#
# Relative performance, the default = 100. The intervals hold jointly at 95 %.

# %%
baselines = cephfit.read_baselines("results.sqlite", run)
predictions = cephfit.predict(profile, baselines)
print(predictions.to_frame())

# %%
best = predictions.of(predictions.best)
print(
    f"best: {best.configuration}, {best.relative - 100:+.0f} % ({best.low - 100:+.0f} to {best.high - 100:+.0f})"
)
print("worst:", predictions.worst)
print("not distinguishable from the best:", ", ".join(predictions.as_good) or "none")
for reason in best.reasons[:3]:
    print(f"  {reason.cell}: {100 * reason.weight:.0f} % of the time, rate {reason.relative:.0f} (default = 100)")
for note in predictions.notes:
    print("note:", note)

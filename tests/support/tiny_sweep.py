"""A sweep file of two configurations in four cells."""

SWEEP = """
schema_version: 1
name: tiny
description: two configurations in four cells
configurations:
  A: {}
  ssd: {pool: {crush_rule: ssd}}
measurement:
  {sizes: [4K], patterns: [read, write, randread, randwrite], clients: 1, volume_size: 16M, repeats: 2,
   ramp_seconds: 0.1, run_seconds: 0.5, ioengine: libaio, iodepth: 1, direct: true, cache: warm, seed: 1}
"""

"""Commands for many images and several pools: `cephfit survey`, `place` and `capacity`."""

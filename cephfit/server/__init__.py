"""The web page and its HTTP API: `cephfit serve`."""

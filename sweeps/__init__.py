"""Ready sweep files. Data only; read with ``importlib.resources``."""

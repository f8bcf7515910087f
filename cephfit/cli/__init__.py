"""The command line: one module per command group, loaded when it is called."""

"""The command line `sparse-lds`, and what its commands do."""

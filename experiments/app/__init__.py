"""The command line `sparse-lds`: its commands, the jobs that they run, and the report."""

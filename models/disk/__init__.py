"""Cohorts on disk, larger than memory: a folder of Parquet, read once (complete) or streamed (with gaps)."""

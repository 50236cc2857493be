"""The MAP judged by the posterior."""

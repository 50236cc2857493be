"""Exact inference over the states: filter, smoother, likelihood and the sums that EM needs."""

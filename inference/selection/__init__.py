"""Choosing β and the number of states."""

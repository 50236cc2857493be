"""The choice of β and of the number of states: regularisation path, cross-validation, stability of the zeros."""

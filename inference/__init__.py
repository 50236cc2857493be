"""How the parameters of a linear dynamical system are learned from a cohort."""

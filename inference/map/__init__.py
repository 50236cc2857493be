"""MAP-EM: the most probable parameters of a cohort."""

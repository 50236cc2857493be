"""MAP-EM: fits that find the most probable parameters of an LDS for a cohort."""

"""Lab files, the paper's evaluation, figures, and the command line."""

"""Local training: what a client computes on its own samples, for all clients of a cohort at once."""

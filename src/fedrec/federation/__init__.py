"""The engine: arrows, rounds, cohorts, client state, privacy stages, checkpoints."""

"""The life of a run: options, rounds, selection, listeners, checkpoints, the result, and saved runs."""

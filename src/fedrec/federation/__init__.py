"""The engine: recommenders, arrows, and the simulation that runs them over cohorts of clients."""

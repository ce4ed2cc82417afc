"""Random streams, negative sampling, and the samples of a round."""

"""What papers share, written once: scorers, merging, aggregation and privacy stages."""

"""What at least two methods share: scorers, tables, aggregation, merging, item-item counts."""

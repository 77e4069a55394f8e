"""Stage 1 of a run: partitions choose, merges bring their choices together, one set is judged."""

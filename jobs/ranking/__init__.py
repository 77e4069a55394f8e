"""Stage 2 of a run on one partition: what a query must not see, recall, and the methods."""

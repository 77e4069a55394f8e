"""Watching a run: work out on Ray and when it stalls, what workers tell, log and metrics."""

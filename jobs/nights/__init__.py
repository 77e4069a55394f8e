"""Stage 1 night by night: what was sent, what came back, what a night builds upon."""

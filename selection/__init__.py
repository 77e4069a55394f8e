"""The mathematics of choosing: arrays in, indices and scores out. No Ray, no files, no text."""

"""Texts out to annotators and labels back in, and what becomes of the records of the pool."""

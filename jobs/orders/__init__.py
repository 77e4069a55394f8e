"""Demonstrations in every order: which, the prompts, their scores."""

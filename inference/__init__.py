"""Text in, text out: encoders, tasks, prompts, engines, parsing, scoring. No Ray."""

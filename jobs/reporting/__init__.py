"""Output tables to metric tables, pictures and the page."""

"""What generate goes by: engines, tries already made, prompts without content."""

"""Pool and demonstrations to prompts: texts that are shown, layouts, orders, budgets."""

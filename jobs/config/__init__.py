"""Every config key with its default, and YAML to arms."""

"""The jobs that are submitted: command line, configuration, storage, and one file per stage."""

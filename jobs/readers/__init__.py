"""Input files of any format to rows: every line becomes a row or a reason."""

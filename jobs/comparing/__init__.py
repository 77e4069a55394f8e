"""What evaluate compares: arms with arms, candidates with candidates, queries side by side."""

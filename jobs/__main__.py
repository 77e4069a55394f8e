"""`python -m jobs`: the command line, for `ray job submit` without an installed package."""

import sys

from jobs.cli import main

sys.exit(main())

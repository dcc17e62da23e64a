"""The command line as `python -m mlpoly`."""

import sys

from mlpoly.cli import main

sys.exit(main())

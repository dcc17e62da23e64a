"""The command line as `python -m mlpoly.cli`."""

import sys

from mlpoly.cli import main

sys.exit(main())

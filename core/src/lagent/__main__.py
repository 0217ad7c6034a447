"""``python -m lagent`` is the command ``lagent``."""

import sys

from lagent.cli import main

sys.exit(main())

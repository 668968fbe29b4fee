"""`python -m ridgeline` is the `ridgeline` command."""

import sys

from ridgeline.cli.main import main

sys.exit(main())

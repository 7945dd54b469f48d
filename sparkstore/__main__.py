"""`python -m sparkstore`: the command line."""

import sys

from sparkstore.cli import main

sys.exit(main())

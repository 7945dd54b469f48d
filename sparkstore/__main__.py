"""`python -m sparkstore`: the command line."""

import sys

from sparkstore.cli.command_line import main

sys.exit(main())

"""spark-submit --properties-file conf/spark-defaults.conf jobs/replicate.py PRIMARY REPLICA.

Options and exit codes are those of `sparkstore replicate`; the report is one line of JSON.
"""

from __future__ import annotations

import sys

from sparkstore.cli.command_line import main

if __name__ == "__main__":
    code = main(["replicate", "--json", *sys.argv[1:]])
    if code:  # some platforms take any call of exit for a failure
        sys.exit(code)

"""`python -m jaxdyn` is the command `jaxdyn`."""

import sys

from jaxdyn.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m flashfleet`."""

import sys

from flashfleet.main import main

sys.exit(main())

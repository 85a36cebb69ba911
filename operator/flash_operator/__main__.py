"""python -m flash_operator"""

import sys

from flash_operator.main import main

sys.exit(main())

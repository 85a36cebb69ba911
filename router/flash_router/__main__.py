"""python -m flash_router"""

import sys

from flash_router.main import main

sys.exit(main())

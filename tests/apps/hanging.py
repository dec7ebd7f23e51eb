"""An app whose import does not end."""

from __future__ import annotations

import time

time.sleep(600.0)

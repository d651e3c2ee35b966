# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""These tests read recordings with the helpers of tests/distributed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "distributed"))

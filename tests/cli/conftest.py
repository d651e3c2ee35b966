# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""command.py of this folder is imported by its name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

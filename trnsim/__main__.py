# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`python -m trnsim` is `trnsim`."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the present folder first, where files of a user may have the names of libraries.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]

    from trnsim.cli import main

    main()

# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`python -m trnsim` is `trnsim`."""

from trnsim.cli import main

if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Writes the digests of the sheets of machines into changes.toml, below the change that says why.

PYTHONPATH=. python tests/machine/record_changes.py
"""

from pathlib import Path

from trnsim.machine import versions

if __name__ == "__main__":
    path = Path(versions.__file__).parent / "changes.toml"
    kept = path.read_text().partition("[digests]\n")[0].rstrip() + "\n\n[digests]\n"
    lines = [f'"{name}" = "{digest}"\n' for name, digest in sorted(versions.digests().items())]
    path.write_text(kept + "".join(lines))

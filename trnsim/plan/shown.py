# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What results of plan have in common: they show themselves in a notebook, and go into parquet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class Shown:
    """Of a result that has a document (`to_dict`)."""

    def to_dict(self) -> dict[str, Any]:
        """The document of the verb."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from trnsim.report.notebook import plan_to_html

        return plan_to_html(self)

    def write_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Writes the rows of the document (points of a curve, layouts of a search) as a table, a
        result without rows as one, and returns the path. Names of columns are those of the
        document, `breakdown_s.compute` for what stands inside of something.

        Raises:
            ReportError: a path that cannot be written.
        """
        from trnsim.report.tables import write_rows

        return write_rows(self.to_dict(), Path(path))

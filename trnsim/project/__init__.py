# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""project: what a step costs, where its time goes, what limits it and what would help.

Calling the package is `trnsim.project.project`: `trnsim.project(workload, "trn2-ultra", chips=64)`.
"""

from trnsim._callable import make_callable
from trnsim.project.projection import Projection, project

__all__ = ["Projection", "project"]

make_callable(__name__, project)

# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""report: a Projection for people (terminal, notebook, HTML), for programs (JSON), for Perfetto."""

from trnsim.report.json import to_json
from trnsim.report.outputs import write_outputs
from trnsim.report.terminal import render_terminal, to_text

__all__ = ["render_terminal", "to_json", "to_text", "write_outputs"]

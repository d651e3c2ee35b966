# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What trnsim raises. Each message is one line: what was wrong, which value, what to change."""


class TrnSimError(Exception):
    """Base of every error that trnsim raises on purpose."""


class MachineError(TrnSimError):
    """A machine file, a preset's name, a chip count or an override is wrong."""


class WorkloadError(TrnSimError):
    """A Workload is malformed, or has no step to measure."""


class CaptureError(TrnSimError):
    """A script cannot be captured on the simulated device."""


class LowerError(TrnSimError):
    """A Workload cannot be lowered for a machine."""


class SimulateError(TrnSimError):
    """A run cannot go on: a deadlock, a mismatched collective, a dead link."""


class ProjectError(TrnSimError):
    """A Timeline cannot be turned into a projection."""


class ReportError(TrnSimError):
    """A result cannot be written or read."""


class ValidationError(TrnSimError):
    """A table of published measurements that cannot be read, or a row that is none."""


class RecipeError(TrnSimError):
    """A model, a layout or a row of measurements that no reference program can be made of."""


class PlanError(TrnSimError):
    """A comparison or a scaling curve cannot be made of what was asked for."""

# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Capture: from a training script to a Workload.

``world`` says which job the captured rank is part of, ``script`` runs a script in it, ``hooks``
tells the recorder what only Python knows, ``process_group`` stands for the other ranks, and
``patches`` holds every library function that is replaced for all that.
"""

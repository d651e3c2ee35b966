# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The CUDA mode of ``trnsim run``: scripts written for CUDA, on the simulated device.

torch's real CUDA device type is served by our kernels, in a process that has no GPU: so
``torch.device("cuda")``, ``tensor.is_cuda`` and ``with torch.device("cuda")`` are torch's own.
``request`` finds out whether a script asks for CUDA, ``driver`` whether a GPU is in the way,
``early`` loads our library before torch is imported, ``limits`` names what cannot be served, and
``trnsim.device.cuda`` puts the simulated device behind the names of ``torch.cuda``.

Nothing here runs by autoload, and nothing imports torch before ``early.load`` has run.
"""

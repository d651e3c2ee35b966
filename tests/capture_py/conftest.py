# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What tests of captures share."""

import gc

import pytest
import torch


@pytest.fixture
def fresh_dynamo():
    """torch.compile remembers nothing of the test before, and leaves nothing."""
    gc.collect()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    gc.collect()

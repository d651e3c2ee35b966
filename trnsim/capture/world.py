# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The job that the captured rank believes it is part of."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trnsim.errors import CaptureError

# Everything that torchrun sets in its workers.
_TORCHRUN_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)


_PLAIN = type(os.environ)


class _OfOneRank(_PLAIN):  # type: ignore[valid-type, misc]
    """The environment of a job of one rank: RANK is there for who needs it, and else not.

    A script asks for it in two ways. `environ.get("RANK")` or `"RANK" in environ` asks whether a
    launcher started it, and many then choose CUDA and NCCL by name; one rank is no such job.
    `environ["RANK"]` is written by who was always started by one.
    """

    def __getitem__(self, name: str) -> str:
        try:
            return super().__getitem__(name)
        except KeyError:
            if name != "RANK":
                raise
        return "0"

    def get(self, name: str, default: Any = None) -> Any:
        return super().__getitem__(name) if name in self else default

    def __contains__(self, name: object) -> bool:
        return name in list(self)


@dataclass
class World:
    """A simulated job: which rank runs, of how many, and how they are placed on servers.

    Args:
        rank: the captured rank.
        world_size: number of ranks of the job, 1 or more.
        ranks_per_server: ranks of one server, which is what ``device_count()`` says. The whole job
            when it is smaller; a single server when None.
        chips: number of chips that the ranks run on, for messages; ``world_size`` when None.

    Raises:
        CaptureError: when a count is less than 1 or the rank is not in the world.
    """

    rank: int = 0
    world_size: int = 1
    ranks_per_server: int | None = None
    chips: int | None = None
    formed_group: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise CaptureError(f"a world of {self.world_size} ranks: use 1 or more")
        if not 0 <= self.rank < self.world_size:
            raise CaptureError(
                f"rank {self.rank} in a world of {self.world_size}: use 0 to {self.world_size - 1}"
            )
        if self.ranks_per_server is None:
            self.ranks_per_server = self.world_size
        if self.ranks_per_server < 1:
            raise CaptureError(f"{self.ranks_per_server} ranks per server: use 1 or more")
        if self.chips is None:
            self.chips = self.world_size

    @property
    def local_world_size(self) -> int:
        """Ranks of the captured rank's server."""
        return min(self.ranks_per_server, self.world_size)

    @property
    def local_rank(self) -> int:
        """The captured rank's index on its server."""
        return self.rank % self.ranks_per_server

    def environment(self) -> dict[str, str]:
        """The variables that a worker of torchrun finds, with this world's values."""
        servers = -(-self.world_size // self.ranks_per_server)
        values = {
            "RANK": self.rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.local_world_size,
            "GROUP_RANK": self.rank // self.ranks_per_server,
            "GROUP_WORLD_SIZE": servers,
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": self.world_size,
            "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        }
        return {name: str(value) for name, value in values.items()}

    @contextlib.contextmanager
    def entered(self) -> Iterator[World]:
        """Inside, this is the current world and the environment is the worker's."""
        global _current
        before = {name: os.environ.pop(name, None) for name in _TORCHRUN_VARIABLES}
        outer, _current = _current, self
        os.environ.update(self.environment())
        is_alone = self.world_size == 1 and type(os.environ) is _PLAIN
        if is_alone:
            del os.environ["RANK"]
            os.environ.__class__ = _OfOneRank
        try:
            yield self
        finally:
            _current = outer
            if is_alone:
                os.environ.__class__ = _PLAIN
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


_current: World | None = None


def current_world() -> World | None:
    """The world that is entered, or None outside of a capture."""
    return _current

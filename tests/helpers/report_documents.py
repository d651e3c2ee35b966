# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Documents that a report takes, and a reader of the pages that it makes."""

import json
from html.parser import HTMLParser

VOID = {"meta", "img", "source", "br", "hr"}
FETCHES = {"src", "srcset", "href", "data", "poster", "action", "background"}


class Reader(HTMLParser):
    """What the page is made of; `wrong` lists tags that do not close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.tags = [], [], []
        self.ids, self.links, self.fetched, self.pieces, self.alts = [], [], [], [], []
        self.feed(text)
        self.close()
        self.text = " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name == "alt":
                self.alts.append(value)
            if name in FETCHES:
                (self.links if value.startswith("#") else self.fetched).append(value)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.pieces.append(data)


def point(chips, step_s, tokens_per_s, **more):
    """Of a document of trnsim scale."""
    return {
        "chips": chips, "ranks": chips, "step_time_s": step_s,
        "step_time_interval_s": [0.9 * step_s, 1.2 * step_s],
        "interval_basis": "inputs (unvalidated)",
        "breakdown_s": {"compute": step_s, "exposed_communication": 0.0, "bubble": 0.0,
                        "host": 0.0, "stall": 0.0},
        "exposed_by_group": {}, "bottleneck": "memory", "mfu": 0.25, "memory_peak_bytes": 1 << 30,
        "memory_capacity_bytes": 2 << 30, "fits": True, "tokens_per_s": tokens_per_s,
        "samples_per_s": None, "cost_usd_per_step": 1e-6, "energy_j_per_step": 5.0,
        "workload_hash": "0" * 16, "timeline_hash": "0" * 16, "guesses": [], "efficiency": None,
        "seconds_to_simulate": 1.5, "reused": False, "reason": None,
    } | more  # fmt: skip


SCALING = {
    "machine": "rainier", "stack": None, "scaling": "weak", "total": None, "rounded": [],
    "points": [point(4, 0.010, 400.0), point(8, 0.012, 640.0),
               {"chips": 16, "step_time_s": None, "reason": "the script failed"}],
}  # fmt: skip


def written(path, document):
    path.write_text(json.dumps(document))
    return path


LAYOUT = {
    "tp": 4, "pp": 1, "vp": 1, "cp": 1, "ep": 1, "dp": 4, "zero": 1, "micro_batch": 1, "chips": 16,
    "recompute": "none", "step_time_s": 1.0, "step_time_interval_s": [0.9, 1.2],
    "memory_peak_bytes": 20 << 30, "memory_capacity_bytes": 90 << 30, "fits": True,
    "on_front": True, "mfu": 0.4, "tokens_per_s": 100.0, "usd_per_million_tokens": 0.5,
    "bottleneck": "memory",
}  # fmt: skip
SLIM = LAYOUT | {"step_time_s": 1.1, "memory_peak_bytes": 10 << 30, "pp": 2, "dp": 2}
SLOW = LAYOUT | {"step_time_s": 2.0, "on_front": False, "step_time_interval_s": None}
SEARCH = {
    "model": {"name": "Llama3-8B"}, "machine": "rainier", "stack": None, "slower_by": 0.1,
    "counts": {"simulated": 3, "layouts": 7}, "wrong_bounds": [], "best": [LAYOUT],
    "front": [LAYOUT, SLIM], "simulated": [LAYOUT, SLIM, SLOW, SLOW | {"fits": False}],
}  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The source of a cost rule can be followed: it names a section of csrc/lower/README.md."""

import re
from pathlib import Path

from trnsim.lower import rules

README = (Path(__file__).resolve().parents[2] / "csrc" / "lower" / "README.md").read_text()
CITATION = re.compile(r"csrc/lower/README\.md '([^']+)'; (.+)")


def families() -> dict[str, str]:
    """Heading of each section under "Rules by family" -> the family that its text names."""
    chapter = README.split("\n## Rules by family\n")[1].split("\n## ")[0]
    named = {}
    for section in chapter.split("\n### ")[1:]:
        heading, text = section.split("\n", 1)
        family = re.match(r"Family `(\w+)`", text)
        named[heading] = family[1] if family else ""
    return named


def cited(rule: dict[str, str]) -> tuple[str, str]:
    found = CITATION.fullmatch(rule["source"])
    assert found, rule
    return found[1], found[2]


def test_every_source_is_one_short_line_with_a_section_and_an_origin():
    for rule in rules():
        section, origin = cited(rule)
        assert len(rule["source"]) < 200, rule
        assert section in families(), rule
        assert re.search(r"@[0-9a-f]{8} \S+\.(py|rst)|inferred", origin), rule


def test_every_section_is_of_its_rules_family_and_has_a_rule():
    found = {(cited(rule)[0], rule["family"]) for rule in rules()}
    # What an op without a rule takes, and one whose cost the script gives.
    without_rule = {("Fallback", ""), ("Given", "")}
    assert found | without_rule == set(families().items())


def test_short_names_of_repositories_stand_in_the_table_of_sources():
    revisions = {
        m for rule in rules() for m in re.findall(r"([a-z-]+)@([0-9a-f]{8})", rule["source"])
    }
    assert revisions
    for repository, commit in revisions:
        assert f"/{repository}" in README
        assert commit in README

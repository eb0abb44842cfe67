"""Findings as SARIF 2.1.0, which code-scanning services read: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nki_sim.errors import GEN_TARGET, Rule
from nki_sim.verify import Finding, level_of

from nki_nb import __version__
from nki_nb.lint.locations import Location, locations
from nki_nb.lint.results import Lint
from nki_nb.lint.text import said, where_it_holds

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"

Json = dict[str, Any]


def as_sarif(lint: Lint, root: Path) -> str:
    """One run as JSON; the same for the same findings."""
    rules = {finding.rule.id: finding.rule for finding in lint.findings}
    numbers = {name: number for number, name in enumerate(sorted(rules))}
    driver = {
        "name": "nki-nb",
        "semanticVersion": __version__,
        "rules": [_rule(rules[name]) for name in numbers],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, numbers, lint, root) for finding in lint.findings],
        "properties": {"kernels": list(lint.kernels), "targets": list(lint.targets)},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _rule(rule: Rule) -> Json:
    told = {
        "id": rule.id,
        "shortDescription": {"text": rule.words or rule.id},
        "fullDescription": {"text": ". ".join(filter(None, (rule.words, rule.why))) or rule.id},
        "help": {"text": "\n".join(filter(None, (rule.why, rule.fix, rule.page))) or rule.id},
        "defaultConfiguration": {"level": level_of(rule)},
        "properties": {"generations": [GEN_TARGET[gen] for gen in rule.gens]},
    }
    return {**told, "helpUri": rule.page} if rule.page else told


def _result(finding: Finding, numbers: dict[str, int], lint: Lint, root: Path) -> Json:
    places = locations(finding, root)
    fix = finding.diagnosis.fix or finding.rule.fix
    words = [said(finding) + where_it_holds(finding, lint), *finding.diagnosis.notes, *([f"fix: {fix}"] if fix else [])]
    result: Json = {
        "ruleId": finding.rule.id,
        "ruleIndex": numbers[finding.rule.id],
        "level": finding.level,
        "message": {"text": "\n".join(words)},
        "locations": [_location(place) for place in places[:1]],
        "properties": {"targets": list(finding.targets)},
    }
    if places[1:]:
        result["relatedLocations"] = [{"id": i, **_location(place)} for i, place in enumerate(places[1:], 1)]
    return result


def _location(place: Location) -> Json:
    artifact = {"uri": quote(place.file), "uriBaseId": ROOT} if place.inside else {"uri": place.path.as_uri()}
    region = {"startLine": place.line, "endLine": place.end_line}
    if place.column is not None:
        region["startColumn"] = place.column
        if place.end_column is not None:
            region["endColumn"] = place.end_column
    located: Json = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if place.function not in ("", "<module>"):
        located["logicalLocations"] = [{"name": place.function, "kind": "function"}]
    return located

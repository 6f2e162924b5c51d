"""A diagnosis as JSON: the same as is printed, with the names of the code for what is closed."""

from collections.abc import Mapping
from typing import Any

from gateway.domain.doctor.diagnosis import Diagnosis, Finding
from gateway.domain.doctor.planned import Comparison, Row


def as_json(diagnosis: Diagnosis, comparison: Comparison) -> Mapping[str, Any]:
    start = diagnosis.start
    return {
        "ending": diagnosis.ending,
        "stage": start.stage.name.lower(),
        "vllm_version": start.version,
        "engine": start.engine,
        "platform": start.platform,
        "model": start.model,
        "architecture": start.architecture,
        "profiled_modality": start.profiled_modality,
        "starts_seen": diagnosis.starts_seen,
        "first_line": start.first_line,
        "measured": {
            term: {"value": reading.value, "other_rank": reading.other, "line": reading.line}
            for term, reading in start.readings.items()
        },
        **comparison_as_json(comparison),
        "findings": [_finding(each) for each in diagnosis.findings],
        "flags": [note._asdict() for note in diagnosis.flag_notes],
        "contradictions": [each._asdict() for each in (*diagnosis.contradictions, *comparison.contradictions)],
        "notes": list(diagnosis.notes),
    }


def comparison_as_json(comparison: Comparison) -> Mapping[str, Any]:
    return {
        "compared": [_row(row) for row in comparison.rows],
        "plan": {
            "verdict": comparison.verdict,
            "why_not": comparison.why_not,
            "reliefs": [each._asdict() for each in comparison.reliefs],
        },
    }


def _finding(found: Finding) -> Mapping[str, Any]:
    return {
        "kind": found.kind,
        "stage": found.stage.name.lower(),
        "of_a_request": found.is_of_a_request,
        "line": found.line,
        "count": found.count,
        "text": found.text,
        **found.advice._asdict(),
    }


def _row(row: Row) -> Mapping[str, Any]:
    return {
        "what": row.what,
        "unit": row.unit,
        "measured": row.measured,
        "planned": row.planned._asdict(),
        "difference": row.difference,
        "within": row.is_within,
    }

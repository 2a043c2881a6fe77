"""What is left out of a list of diagnostics, because another one says it already.

Takes the diagnostics of a file; gives those that a reader is to see. Most follow-ons never arise, for a value that is
wrong has no type that could be wrong again; here are those that two passes, or two functions, find apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from shapescript.diagnostics.diagnostic import Diagnostic


def without_follow_ons(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Those that don't only follow from another.

    A list `[1, 2, 3]` isn't a value, and then its commas don't matter. Where a parameter's own type is what is wrong in
    a function, a call that doesn't fit it isn't wrong too.
    """
    diagnostics = list(found)
    lists = [each.primary.span for each in diagnostics if each.code == "E0617"]
    parameters = [label.span for each in diagnostics if each.code == "E0709" for label in each.secondary]
    if not lists and not parameters:
        return diagnostics

    def follows(each: Diagnostic) -> bool:
        span = each.primary.span
        if each.code == "E0116":
            return any(span.source is of.source and of.start <= span.start and span.end <= of.end for of in lists)
        return each.code == "E0607" and any(label.span in parameters for label in each.secondary)

    return [each for each in diagnostics if not follows(each)]

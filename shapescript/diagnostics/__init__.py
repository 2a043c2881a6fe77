"""Diagnostics: what the checker says, as data (`diagnostic`), as text (`render`, `formats`), at length (`explain`)."""

"""Runs and judgements as text: Markdown, HTML, CSV and JSON."""

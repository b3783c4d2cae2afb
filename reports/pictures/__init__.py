"""Runs and judgements as matplotlib figures."""

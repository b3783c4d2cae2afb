"""Statistics and verdicts on Runs. No process, no clock."""

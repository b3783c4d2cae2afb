"""Statistics and verdicts on any two sets of Runs. Pure: no process, no file but a baseline's and a budget's, no clock."""

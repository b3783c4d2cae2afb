"""Tests of pure functions: no process is started, and nothing waits."""

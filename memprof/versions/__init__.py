"""Releases and commits as environments and builds, and the history of a project's figures."""

"""The ways in: cli/, the command line; api, the library; pytest_plugin/. Each parses, makes one call, and writes."""

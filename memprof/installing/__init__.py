"""Makes the environments of memprof.programs.environments: pip is asked what a runtime needs, then a virtual environment gets it."""

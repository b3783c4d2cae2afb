"""The library of this project as a runtime: its import is MODEL_LOAD."""


class Runtime:
    """See runners/runtimes/__init__.py."""

    def load(self, model, options):
        """All that a script gets with `import memprof` once it measures; the model is not looked at."""
        import memprof

        self.library = memprof.measure

    def prepare(self):
        """Nothing."""

    def execute(self):
        """Nothing."""

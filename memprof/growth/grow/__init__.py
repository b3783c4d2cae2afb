"""Whether memory rises with use, which call sites hold what rose, and why."""

"""Since when: a history of a project's memory, commit by commit, and the search for the version that changed it."""

"""Since when: the search for the release or the commit that changed a figure, and its cause."""

"""Did it get worse, and since when: gate/ decides on one change, bisect/ finds the release or the commit of a step."""

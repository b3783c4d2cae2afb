"""Did it get worse: both sides of a change, measured and judged."""

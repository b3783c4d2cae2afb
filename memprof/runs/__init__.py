"""A measurement's records, the files they are kept in, and the meaning of their figures."""

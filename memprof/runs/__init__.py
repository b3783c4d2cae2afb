"""What a measurement is: the records, the files they are kept in, and what their figures mean."""

"""What can be run: runtimes, native programs, commands, and their symbols."""

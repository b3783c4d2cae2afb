"""The cases of attacks on memprof, a table for each kind, and how each is tried. tests/process/test_attack.py tries some of each kind once;
ci/attack.py tries all of them, as often as it is told, and counts."""

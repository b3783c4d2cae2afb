"""The benches that guard README's claims: a script for each, which measures and writes its table into the manual (docs.py).

transient.py, growth.c and growth_runtime.py are measured programs: they run in processes of their own and are never imported here.
"""

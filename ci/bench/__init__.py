"""The parts of ci/bench.py: a module for each claim, each with `measure(setting) -> Section`.

tools.py runs one program under memprof's recorder, under mprof or under psrecord; table.py has the results of a section. transient.py and
alternating.py are measured programs: they run in processes of their own and are never imported here.
"""

"""The program that starts one child, follows its marks, polls its memory and reports one Run. Its contract stands in __main__.

Stdlib only, Python 3.8 and later, and little of it: dataclasses alone would cost it a quarter of its memory, so it works on plain values
and writes the JSON that memprof.runs.records describes.
"""

"""`memprof marks`: where the header and the Python file are with which programs mark their phases."""

from __future__ import annotations

import click

from . import CliCommand

_EPILOG = """\b
Examples:
  cc -I"$(memprof marks --include)" app.c -o app && memprof exec -- ./app
  cp "$(memprof marks --python)" . && memprof exec -- python script.py
"""

_EXAMPLE = """\
C and C++: {header}

    #include "memprof.h"

    memprof_begin("MODEL_LOAD");  model = load(path);  memprof_end();
    memprof_value("arena_bytes", arena_size(model));
    memprof_begin("EXECUTE");
    for (i = 0; i < runs; ++i) {{ run(model); memprof_iteration(); }}
    memprof_end();

    cc -I{folder} app.c -o app && memprof exec -- ./app

Python: {python}

    from memprof_marks import iteration, phase, value

    with phase("MODEL_LOAD"):
        model = load(path)
    value("arena_bytes", model.arena_bytes)
    with phase("EXECUTE"):
        for batch in batches:
            model.run(batch)
            iteration()

    cp {copied} . && memprof exec -- python script.py
"""


@click.command(cls=CliCommand, epilog=_EPILOG)
@click.option("--include", "what", flag_value="include", help="Only the folder of memprof.h.")
@click.option("--python", "what", flag_value="python", help="Only the path of memprof_marks.py.")
@click.option("--json", "as_json", is_flag=True, help="Both paths as JSON.")
def command(what: str | None, as_json: bool) -> None:
    """Say where memprof.h and memprof_marks.py are, and how a program marks its phases with them."""
    import json
    import shlex

    from ...base.runners import runners_path

    header, python = runners_path() / "native" / "memprof.h", runners_path() / "memprof_marks.py"
    if as_json:
        click.echo(json.dumps({"header": str(header), "python": str(python)}))
    elif what is not None:
        click.echo(header.parent if what == "include" else python)
    else:
        folder, copied = shlex.quote(str(header.parent)), shlex.quote(str(python))
        click.echo(_EXAMPLE.format(header=header, folder=folder, python=python, copied=copied), nl=False)

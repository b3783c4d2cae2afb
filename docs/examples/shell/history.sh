#!/usr/bin/env bash
# For a cron job or a desk: adds the checkout's commit to the history and writes the page into site/.
# MEMPROF_HOME is a checkout of memprof.
set -euo pipefail
export MEMPROF_VENV=${MEMPROF_VENV:-$PWD/.memprof-venv} MEMPROF_SUITE=bench/suite.toml
export MEMPROF_INSTALL=${MEMPROF_INSTALL:-$MEMPROF_HOME[history]}
[ -x "$MEMPROF_VENV/bin/memprof" ] || "$MEMPROF_HOME/ci/gate/install"
PATH="$MEMPROF_VENV/bin:$PATH" exec "$MEMPROF_HOME/ci/history/recipe"

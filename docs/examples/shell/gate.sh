#!/usr/bin/env bash
# For Jenkins, Buildkite, a cron job or a desk: everything that a gate needs, in one script.
# MEMPROF_HOME is a checkout of memprof.
set -euo pipefail
MEMPROF_VENV=${MEMPROF_VENV:-$PWD/.memprof-venv}
export MEMPROF_BASE_REF=${MEMPROF_BASE_REF:-origin/main}
export MEMPROF_VENV MEMPROF_SUITE=bench/suite.toml MEMPROF_ARGS="--confirm --prove"
[ -x "$MEMPROF_VENV/bin/memprof" ] || "$MEMPROF_HOME/ci/gate/install"
PATH="$MEMPROF_VENV/bin:$PATH" exec "$MEMPROF_HOME/ci/gate/recipe"

"""llama.cpp's server, to be measured under a load: `python serve_llama.py MODEL PORT SLOTS CONTEXT [PROMPT_CACHE_MIB]`, until it is ended."""

import sys
import threading

import xllamacpp

model, port, slots, context, *cache = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path, params.port = model, int(port)
params.n_parallel, params.n_ctx = int(slots), int(context)
params.cache_ram_mib = int(cache[0]) if cache else 0
params.cpuparams.n_threads = 1
params.warmup = params.fit_params = False
params.verbosity = -1
server = xllamacpp.Server(params)
threading.Event().wait()

"""llama.cpp through the package xllamacpp, which brings it as a shared library. Seen with xllamacpp 2026.10.

The package's own class, Server, reads the weights and makes the context in one call. With engine=direct the functions of llama.h in the same
library are called in its place: llama_model_load_from_file is MODEL_LOAD, llama_init_from_model is PREPARE. Their parameters are structures that
change from version to version. They are never laid out here: llama.cpp's own functions make them from the package's CommonParams, and they are
handed on as they are. Where these functions are missing, or CommonParams has no structure that looks as it should, the Server is used, and a note
tells which.
"""

import ctypes
import os
import struct

from . import ON_OFF, Knob, Refused

_KV_TYPES = ("f16", "bf16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
_PROMPT, _GENERATE = "128", "32"
_FLASH = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}
# llama_log_set's levels from here on are warnings and errors (ggml.h, ggml_log_level).
_WARNING = 3
# Ids that every vocabulary has and that end no text: the bytes and the commonest pieces. Prime to the step below.
_FIRST_TOKEN, _TOKENS, _STEP = 3, 251, 97


class Runtime:
    distribution = "xllamacpp"
    formats = (".gguf",)
    default_threads = None
    threads_call = "CommonParams.cpuparams.n_threads = {value}"
    knobs = (
        Knob(
            "context",
            "int",
            "4096",
            "tokens that the KV cache holds, those of all slots together",
            tries=("2048", "8192"),
            call="CommonParams.n_ctx = {value}",
        ),
        Knob(
            "slots",
            "int",
            "1",
            "requests that can be open at once; without kv_unified they share the context out",
            call="CommonParams.n_parallel = {value}",
        ),
        Knob(
            "kv_unified",
            ON_OFF,
            "off",
            "one KV cache for all slots, in which each can take the whole context",
            call="CommonParams.kv_unified = {flag}",
        ),
        Knob(
            "kv_type",
            _KV_TYPES,
            "f16",
            "the type of the KV cache; of less than 16 bits only with flash attention",
            call={kind: f"CommonParams.cache_type_k = CommonParams.cache_type_v = GGML_TYPE_{kind.upper()}" for kind in _KV_TYPES},
        ),
        Knob(
            "flash_attention",
            ("auto", *ON_OFF),
            "auto",
            "attention without a whole matrix of scores",
            call={value: f"CommonParams.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_{name}" for value, name in _FLASH.items()},
        ),
        Knob(
            "batch",
            "int",
            "2048",
            "tokens of a prompt that are handed over at once",
            tries=("512",),
            call="CommonParams.n_batch = {value}",
        ),
        Knob(
            "micro_batch",
            "int",
            "512",
            "tokens that are computed at once: compute buffers grow with it",
            tries=("64", "128"),
            call="CommonParams.n_ubatch = {value}",
        ),
        Knob(
            "mmap",
            ON_OFF,
            "on",
            "map the weights instead of reading them",
            call="CommonParams.use_mmap = {flag}; from load_mode on, LLAMA_LOAD_MODE_NONE for False",
        ),
        Knob(
            "mlock",
            ON_OFF,
            "off",
            "lock the weights in memory, so that none of them is read again",
            call="CommonParams.use_mlock = {flag}; from load_mode on, LLAMA_LOAD_MODE_MLOCK for True",
        ),
        Knob(
            "engine",
            ("direct", "server"),
            "direct",
            "llama.cpp's functions, or its server, whose MODEL_LOAD holds PREPARE",
            call="",
        ),
        Knob(
            "prompt_cache",
            "bytes",
            "0",
            "engine=server: keep as much of earlier prompts' KV cache beside the context",
            bounds="bytes",
            call="CommonParams.cache_ram_mib, of {value} bytes",
        ),
        Knob("prompt", "int", _PROMPT, "tokens of each request's prompt", call=""),
        Knob("generate", "int", _GENERATE, "tokens generated for each request", call=""),
    )

    def __init__(self):
        import xllamacpp

        self.package = xllamacpp
        self.version = xllamacpp.__version__
        self.notes = []
        self._request = 0

    def load(self, model, options):
        knobs = options.knobs
        self._model = os.path.realpath(model)
        self._prompt_tokens, self._generate_tokens = knobs["prompt"], knobs["generate"]
        _check(knobs)
        params = self._params(model, options)
        direct = _Direct.over(self.package, params) if knobs["engine"] == "direct" else None
        if direct is None:
            if knobs["engine"] == "direct":
                self.notes.append("this xllamacpp has no way to read the weights alone: engine=server")
            self.notes.append("MODEL_LOAD has PREPARE in it: llama.cpp's server reads the weights and makes the context in one call")
        self._engine = direct or _Server(self.package, params)
        self._engine.load(model)

    def _params(self, model, options):
        """The settings as llama.cpp's own structure."""
        package, knobs = self.package, options.knobs
        params = package.CommonParams()
        params.model.path = model
        params.warmup = params.fit_params = False  # memprof has a WARMUP; and no setting may be changed to fit into memory
        params.n_gpu_layers = 0
        params.verbosity = -1
        params.cpuparams.n_threads = options.threads or len(os.sched_getaffinity(0))
        params.n_ctx, params.n_parallel = knobs["context"], knobs["slots"]
        params.n_batch, params.n_ubatch = knobs["batch"], min(knobs["micro_batch"], knobs["batch"])
        params.kv_unified = knobs["kv_unified"]
        params.cache_type_k = params.cache_type_v = getattr(package.ggml_type, "GGML_TYPE_" + knobs["kv_type"].upper())
        flash = _FLASH[knobs["flash_attention"]]
        params.flash_attn_type = getattr(package.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + flash)
        self._set_loading(params, knobs["mmap"], knobs["mlock"])
        params.cache_ram_mib = -(-knobs["prompt_cache"] >> 20) if knobs["prompt_cache"] else 0
        return params

    def _set_loading(self, params, mmap, mlock):
        modes = getattr(self.package, "llama_load_mode", None)
        if modes is None:  # before llama.cpp's load_mode
            params.use_mmap, params.use_mlock = mmap, mlock
            return
        name = {(True, False): "MMAP", (False, False): "NONE", (False, True): "MLOCK", (True, True): "MMAP_MLOCK"}[mmap, mlock]
        params.load_mode = getattr(modes, "LLAMA_LOAD_MODE_" + name)

    def prepare(self):
        self._engine.prepare()
        self.notes += [line for line in self._engine.warnings if "mlock" in line]

    def prompt(self):
        """Evaluate a prompt that no earlier request had; the tokens of it."""
        first = self._request
        self._request += 1
        self._tokens = [_FIRST_TOKEN + (first + _STEP * place) % _TOKENS for place in range(self._prompt_tokens)]
        self._engine.prompt(self._tokens)
        return len(self._tokens)

    def generate(self):
        """Generate after the last prompt, however often; the tokens of it."""
        self._engine.generate(self._tokens, self._generate_tokens)
        return self._generate_tokens

    def release(self):
        """Free the weights and the context, which are llama.cpp's."""
        self._engine.release()

    def figures(self):
        """How much of the model's file is mapped and resident, if it is mapped."""
        size = _resident(self._model)
        return {} if size is None else {"model_resident_bytes": size}


def _check(knobs):
    """Refuses settings that llama.cpp would end the process for, or answer with an error in the middle."""
    for name in ("context", "slots", "batch", "micro_batch", "prompt", "generate"):
        if not 0 < knobs[name] < 1 << 31:
            raise Refused("%s=%d: it is a number from 1 to 2147483647" % (name, knobs[name]))
    room = knobs["context"] if knobs["kv_unified"] else knobs["context"] // knobs["slots"]
    wanted = knobs["prompt"] + knobs["generate"]
    if wanted > room:
        share = "" if room == knobs["context"] else " of a slot (context=%d shared out to slots=%d)" % (knobs["context"], knobs["slots"])
        raise Refused(
            "prompt=%d and generate=%d are %d tokens: more than the %d%s" % (knobs["prompt"], knobs["generate"], wanted, room, share)
        )
    if knobs["kv_type"] not in ("f32", "f16", "bf16") and knobs["flash_attention"] == "off":
        raise Refused("kv_type=%s needs flash attention, which flash_attention=off forbids" % knobs["kv_type"])
    if knobs["prompt_cache"] and knobs["engine"] != "server":
        raise Refused("prompt_cache is a setting of llama.cpp's server: give engine=server too")


def _resident(path):
    """Bytes of a file that are mapped here and resident, None if it is not mapped."""
    total, inside, seen = 0, False, False
    name = os.fsencode(path)
    with open("/proc/self/smaps", "rb") as file:
        for line in file:
            if b":" in line.split(b" ", 1)[0]:
                if inside and line.startswith(b"Rss:"):
                    total += int(line.split()[1]) * 1024
            else:
                inside = line.rstrip(b"\n").endswith(b" " + name)
                seen = seen or inside
    return total if seen else None


class _Opaque(ctypes.Structure):
    """A structure that only llama.cpp looks into: as large as any that its functions take or return by value (the largest has some 200 bytes)."""

    _fields_ = [("words", ctypes.c_uint64 * 256)]


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _Direct:
    """llama.cpp by the functions of llama.h: the weights and the context apart, one request after another in the first slot."""

    @classmethod
    def over(cls, package, params):
        """An engine with these settings; None if this package's library does not allow it."""
        address = _address(params)
        try:
            library = ctypes.CDLL(package.xllamacpp.__file__)
            functions = _functions(library)
        except (AttributeError, OSError):
            return None
        return cls(params, address, functions) if address is not None else None

    def __init__(self, params, address, functions):
        self._params, self._address, self._c = params, address, functions
        self._batch = params.n_batch
        self.warnings = []
        self._log = _LOG(self._said)  # kept: llama.cpp holds only its address
        self._level = 0
        self._context = self._weights = None

    def _said(self, level, text, _):
        # Level 5 goes on with the line before.
        self._level = self._level if level == 5 else level
        if self._level >= _WARNING and len(self.warnings) < 100:
            self.warnings.append(" ".join(text.decode("utf-8", "replace").split()))

    def load(self, model):
        self._c["llama_log_set"](self._log, None)
        self._c["llama_backend_init"]()
        self._weights = self._c["llama_model_load_from_file"](os.fsencode(model), self._c[_MODEL_PARAMS](self._address))
        if not self._weights:
            raise RuntimeError(self._reason("the model could not be loaded"))

    def prepare(self):
        self._context = self._c["llama_init_from_model"](self._weights, self._c[_CONTEXT_PARAMS](self._address))
        if not self._context:
            raise RuntimeError(self._reason("the context could not be made"))
        self._memory = self._c["llama_get_memory"](self._context)
        self._sampler = self._c["llama_sampler_init_greedy"]()

    def _reason(self, otherwise):
        return "; ".join(line for line in self.warnings[-3:] if line) or otherwise

    def prompt(self, tokens):
        self._c["llama_memory_clear"](self._memory, False)
        for start in range(0, len(tokens), self._batch):
            self._decode(tokens[start : start + self._batch])

    def generate(self, tokens, count):
        # Back to the prompt. Its last token is evaluated again, because what follows is chosen by its result.
        self._c["llama_memory_seq_rm"](self._memory, 0, len(tokens) - 1, -1)
        self._decode(tokens[-1:])
        for _ in range(count):
            self._decode([self._c["llama_sampler_sample"](self._sampler, self._context, -1)])

    def release(self):
        self._c["llama_sampler_free"](self._sampler)
        self._c["llama_free"](self._context)
        self._c["llama_model_free"](self._weights)
        self._c["llama_log_set"](_LOG(0), None)  # this object's own ends with it

    def _decode(self, tokens):
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        code = self._c["llama_decode"](self._context, self._c["llama_batch_get_one"](array, len(tokens)))
        if code:
            raise RuntimeError("llama_decode: %d%s" % (code, "".join(": " + line for line in self.warnings[-1:])))


_MODEL_PARAMS = "_Z28common_model_params_to_llamaR13common_params"
_CONTEXT_PARAMS = "_Z30common_context_params_to_llamaRK13common_params"


def _functions(library):
    """llama.cpp's functions by name. Raises AttributeError if one is missing."""
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    signatures = {
        _MODEL_PARAMS: (_Opaque, pointer),
        _CONTEXT_PARAMS: (_Opaque, pointer),
        "llama_log_set": (None, _LOG, pointer),
        "llama_backend_init": (None,),
        "llama_model_load_from_file": (pointer, ctypes.c_char_p, _Opaque),
        "llama_init_from_model": (pointer, pointer, _Opaque),
        "llama_get_memory": (pointer, pointer),
        "llama_memory_clear": (None, pointer, ctypes.c_bool),
        "llama_memory_seq_rm": (ctypes.c_bool, pointer, number, number, number),
        "llama_batch_get_one": (_Opaque, pointer, number),
        "llama_decode": (number, pointer, _Opaque),
        "llama_sampler_init_greedy": (pointer,),
        "llama_sampler_free": (None, pointer),
        "llama_free": (None, pointer),
        "llama_model_free": (None, pointer),
        "llama_sampler_sample": (number, pointer, pointer, number),
    }
    functions = {}
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return functions


def _address(params):
    """Where llama.cpp's structure common_params lies inside the package's object, None if it is not there.

    Its first members are n_predict, n_ctx, n_batch and n_ubatch: four numbers that were just set are looked for.
    """
    kept = [(name, getattr(params, name)) for name in ("n_predict", "n_ctx", "n_batch", "n_ubatch")]
    try:
        numbers = [0x5A3C0000 + place for place in range(4)]
        for (name, _), number in zip(kept, numbers):
            setattr(params, name, number)
        place = ctypes.string_at(id(params), type(params).__basicsize__).find(struct.pack("<4i", *numbers))
    finally:
        for name, value in kept:
            setattr(params, name, value)
    return id(params) + place if place > 0 else None


class _Server:
    """llama.cpp's server inside this process: its slots and its prompt cache, without its port."""

    def __init__(self, package, params):
        self._package, self._params = package, params
        self.warnings = []

    def load(self, model):
        self._server = self._package.Server(self._params)

    def prepare(self):
        pass

    def prompt(self, tokens):
        self._ask(tokens, 0)

    def generate(self, tokens, count):
        # The slot still has the prompt: only its last token is evaluated again.
        self._ask(tokens, count)

    def release(self):
        del self._server

    def _ask(self, tokens, count):
        request = {"prompt": tokens, "n_predict": count, "cache_prompt": True, "ignore_eos": True, "temperature": 0}
        answer = self._server.handle_completions(request)
        if not isinstance(answer, dict) or "error" in answer:
            error = answer.get("error") if isinstance(answer, dict) else answer
            raise RuntimeError(str(error.get("message", error) if isinstance(error, dict) else error))

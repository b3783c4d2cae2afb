"""onnxruntime-genai: ONNX models that generate, with its loop around ONNX Runtime. A model is a folder with genai_config.json. Seen with 0.18.

Its Model reads the graph and prepares the session in one call, so MODEL_LOAD has both. PREPARE makes the generator. How large the KV cache is, and
when it is made, is up to genai_config.json: with past_present_share_buffer it is one buffer for max_length tokens, else it grows with the tokens.
"""

import json
import os

from . import ON_OFF, Knob, Refused

_PROMPT, _GENERATE = "128", "32"
# As in llamacpp.py: ids that every vocabulary has and that end no text, prime to the step.
_FIRST_TOKEN, _TOKENS, _STEP = 3, 251, 97


def _entry(name, value):
    return {"off": '"%s": %s among the session_options of genai_config.json' % (name, value)}


class Runtime:
    distribution = "onnxruntime-genai"
    needs = ("numpy",)
    formats = ("/genai_config.json",)
    default_threads = None
    threads_call = '"intra_op_num_threads": {value} among the session_options of genai_config.json'
    env = {"ORT_DISABLE_TELEMETRY": "1"}
    knobs = (
        Knob(
            "chunk",
            "int",
            None,
            "tokens of a prompt that are computed at once (its own: all of them); activations are those of a chunk",
            tries=("32", "128"),
            call="GeneratorParams.set_search_options(chunk_size={value})",
        ),
        Knob("arena", ON_OFF, "on", "ONNX Runtime's CPU memory arena", call=_entry("enable_cpu_mem_arena", "false")),
        Knob("mem_pattern", ON_OFF, "on", "plan all activations of a run as one block", call=_entry("enable_mem_pattern", "false")),
        Knob(
            "prepacking",
            ON_OFF,
            "on",
            "repack weights into the layout that the kernels like best",
            call=_entry("session.disable_prepacking", '"1"'),
        ),
        Knob("prompt", "int", _PROMPT, "tokens of each request's prompt", call=""),
        Knob("generate", "int", _GENERATE, "tokens generated for each request", call=""),
    )

    def __init__(self):
        import numpy
        import onnxruntime_genai

        if hasattr(onnxruntime_genai, "disable_telemetry_events"):
            onnxruntime_genai.disable_telemetry_events()
        self.genai, self.numpy = onnxruntime_genai, numpy
        self.version = onnxruntime_genai.__version__
        self.notes = ["MODEL_LOAD has ONNX Runtime's PREPARE in it: onnxruntime-genai reads and prepares a model in one call"]
        self._request = 0

    def load(self, model, options):
        knobs = self._knobs = options.knobs
        path = os.path.join(model, "genai_config.json")
        if not os.path.isfile(path):
            raise Refused("%s has no genai_config.json: genai takes a folder of onnxruntime-genai" % os.path.basename(model))
        for name in ("chunk", "prompt", "generate"):
            if knobs[name] is not None and not 0 < knobs[name] < 1 << 31:
                raise Refused("%s=%d: it is a number from 1 to 2147483647" % (name, knobs[name]))
        self._all = knobs["prompt"] + knobs["generate"]
        room = self._room(path)
        if self._all > room:
            raise Refused(
                "prompt=%d and generate=%d are %d tokens: more than the %d of the context"
                % (knobs["prompt"], knobs["generate"], self._all, room)
            )
        config = self.genai.Config(model)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": _session(knobs, options.threads)}}}))
        self._model = self.genai.Model(config)

    def _room(self, path):
        """The tokens of the longest text, as the configuration has it."""
        with open(path, encoding="utf-8") as file:
            try:
                config = json.load(file)
                search = config.get("search", {})
                if search.get("past_present_share_buffer"):
                    self.notes.append("the KV cache is one buffer for max_length tokens, as genai_config.json says")
                return search.get("max_length") or config["model"].get("context_length") or self._all
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise Refused("genai_config.json is not one of onnxruntime-genai: %s: %s" % (type(error).__name__, error)) from None

    def prepare(self):
        self._new_generator()

    def _new_generator(self):
        knobs = self._knobs
        params = self.genai.GeneratorParams(self._model)
        # min_length: an end of the text, which random weights may give, would end the measurement.
        search = {"min_length": self._all, "do_sample": False}
        if knobs["chunk"] is not None:
            search["chunk_size"] = knobs["chunk"]
        params.set_search_options(**search)
        self._generator = self.genai.Generator(self._model, params)

    def prompt(self):
        """Evaluate a prompt that no earlier request had; the tokens of it."""
        if self._generator.token_count():
            self._generator = None  # before the new one, so that there are never two KV caches
            self._new_generator()
        first = self._request
        self._request += 1
        count = self._knobs["prompt"]
        self._tokens = self.numpy.array([_FIRST_TOKEN + (first + _STEP * place) % _TOKENS for place in range(count)], dtype="int32")
        self._generator.append_tokens(self._tokens)
        return count

    def generate(self):
        """Generate after the last prompt, however often; the tokens of it."""
        if self._generator.token_count() > len(self._tokens):
            # Back to the prompt. Its last token is evaluated again, because what follows is chosen by its result.
            self._generator.rewind_to(len(self._tokens) - 1)
            self._generator.append_tokens(self._tokens[-1:])
        for _ in range(self._knobs["generate"]):
            self._generator.generate_next_token()
        return self._knobs["generate"]

    def outputs(self):
        """The tokens that the last request generated."""
        return [self._generator.get_sequence(0)[len(self._tokens) :]]


def _session(knobs, threads):
    """onnxruntime-genai's session_options for these knobs."""
    options = {"enable_cpu_mem_arena": knobs["arena"], "enable_mem_pattern": knobs["mem_pattern"]}
    if threads:
        options["intra_op_num_threads"] = threads
        options["inter_op_num_threads"] = 1
    if not knobs["prepacking"]:
        options["session.disable_prepacking"] = "1"
    return options

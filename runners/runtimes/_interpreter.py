"""The common part of tflite-runtime and LiteRT: both offer the class Interpreter of TensorFlow Lite.

The two packages descend from the same source and differ in a few arguments, which their own files add. Seen with tflite-runtime 2.14
and ai-edge-litert 2.3.
"""

from . import ON_OFF, Knob

_RESOLVER = "Interpreter(..., experimental_op_resolver_type=OpResolverType."
KNOBS = (
    Knob(
        "xnnpack",
        ON_OFF,
        "on",
        "XNNPACK's kernels, which keep a repacked copy of the weights",
        call={"off": _RESOLVER + "BUILTIN_WITHOUT_DEFAULT_DELEGATES)"},
        needs={"kernels": "optimized"},  # one argument of the Interpreter chooses both
    ),
    Knob(
        "kernels",
        ("optimized", "reference"),
        "optimized",
        "the kernels where XNNPACK does not run: reference kernels need no scratch memory, are many times slower, and switch XNNPACK off",
        call={"reference": _RESOLVER + "BUILTIN_REF)"},
    ),
    Knob(
        "source",
        ("file", "buffer"),
        "file",
        "map the model file, or read it into memory and hand that over",
        call={"buffer": "Interpreter(model_content=...) in place of model_path"},
    ),
    Knob(
        "preserve_all_tensors",
        ON_OFF,
        "off",
        "keep every intermediate tensor instead of reusing its memory",
        call="Interpreter(..., experimental_preserve_all_tensors={flag})",
        needs={"api": "interpreter"},  # of LiteRT's two; tflite has no other
    ),
)


class InterpreterRuntime:
    formats = (".tflite",)
    default_threads = 1
    threads_call = "Interpreter(..., num_threads={value})"

    def _use(self, module, version):
        """Keep the package's interpreter module, for a subclass's __init__."""
        self._module = module
        self.version = version
        self.notes = []

    def load(self, model, options):
        self._shapes = options.shapes
        self._interpreter = self._module.Interpreter(**source(model, options), **self._settings(options))

    def prepare(self):
        for tensor in self._interpreter.get_input_details():
            if tensor["name"] in self._shapes:
                self._interpreter.resize_tensor_input(tensor["index"], self._shapes[tensor["name"]])
        self._interpreter.allocate_tensors()

    def signature(self):
        inputs = []
        for tensor in self._interpreter.get_input_details():
            shape = tuple(int(size) if size >= 0 else None for size in tensor["shape_signature"])
            inputs.append((tensor["name"], shape, tensor["dtype"].__name__))
        return inputs

    def set_inputs(self, arrays):
        resized = [tensor for tensor in self._interpreter.get_input_details() if tuple(tensor["shape"]) != arrays[tensor["name"]].shape]
        for tensor in resized:
            self._interpreter.resize_tensor_input(tensor["index"], arrays[tensor["name"]].shape)
        if resized:
            self._interpreter.allocate_tensors()
        for tensor in self._interpreter.get_input_details():
            self._interpreter.set_tensor(tensor["index"], arrays[tensor["name"]])

    def execute(self):
        # The inputs stay where they are and the outputs are not copied out: this is what TFLite's own benchmark_model times.
        self._interpreter.invoke()

    def outputs(self):
        return [self._interpreter.get_tensor(tensor["index"]) for tensor in self._interpreter.get_output_details()]

    def _settings(self, options):
        kinds = self._module.OpResolverType
        if options.knobs["kernels"] == "reference":
            kind = kinds.BUILTIN_REF
        else:
            kind = kinds.BUILTIN if options.knobs["xnnpack"] else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        settings = {
            "experimental_op_resolver_type": kind,
            "experimental_preserve_all_tensors": options.knobs["preserve_all_tensors"],
        }
        if options.threads:
            settings["num_threads"] = options.threads
        return settings


def source(model, options):
    """The model as the Interpreter's constructor takes it."""
    if options.knobs["source"] == "file":
        return {"model_path": model}
    with open(model, "rb") as file:
        return {"model_content": file.read()}

"""ONNX Runtime, through its Python package.

The public constructor loads and prepares in one step. The class beneath it, in `onnxruntime.capi._pybind_state`, has the two apart; it is
private, so if it is missing MODEL_LOAD includes PREPARE, and a note of the results reports it. Seen with 1.17 to 1.31.
"""

import os

from . import ON_OFF, Knob, Refused

_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(int16)": "int16",
    "tensor(uint16)": "uint16",
    "tensor(int32)": "int32",
    "tensor(uint32)": "uint32",
    "tensor(int64)": "int64",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
    "tensor(string)": "str",
}
_PROVIDERS = {"cpu": "CPUExecutionProvider", "xnnpack": "XnnpackExecutionProvider", "cuda": "CUDAExecutionProvider"}
_LEVELS = {"all": "ORT_ENABLE_ALL", "extended": "ORT_ENABLE_EXTENDED", "basic": "ORT_ENABLE_BASIC", "off": "ORT_DISABLE_ALL"}
_ORDERS = {"default": "DEFAULT", "priority": "PRIORITY_BASED", "memory_efficient": "MEMORY_EFFICIENT"}
_MODES = {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}

_TELEMETRY_SINCE = (1, 29)


def _by_value(text, names):
    """The words for each value, whose name in the runtime's interface stands for {name}."""
    return {value: text.replace("{name}", name) for value, name in names.items()}


def _entry(value, name, text):
    return {value: 'SessionOptions.add_session_config_entry("%s", "%s")' % (name, text)}


class Runtime:
    distribution = "onnxruntime"
    formats = (".onnx", ".ort")
    build_uses = ("optimization", "constant_folding")  # the ORT format holds the graph as optimised
    default_threads = None
    threads_call = "SessionOptions.intra_op_num_threads = {value}"
    # From 1.29 on it keeps a database of what it sends to its makers: 2.6 MiB of memory, and where it lies differs with the database's path and
    # content. With CI set it keeps none by itself.
    env = {"ORT_DISABLE_TELEMETRY": "1"}
    doubling = "arena"
    reshapes = False
    # One knob is left out: session.use_ort_model_bytes_for_initializers. For a path it does nothing, and Python's bytes reach the session as a
    # temporary that is freed before the first run (SIGSEGV, 1.31).
    knobs = (
        Knob(
            "optimization",
            ("all", "extended", "basic", "off"),
            "all",
            "graph optimization level",
            call=_by_value("SessionOptions.graph_optimization_level = GraphOptimizationLevel.{name}", _LEVELS),
        ),
        Knob(
            "prepacking",
            ON_OFF,
            "on",
            "repack weights into the layout that the kernels like best; shared weights stay in both",
            call=_entry("off", "session.disable_prepacking", "1"),
        ),
        Knob(
            "constant_folding",
            ON_OFF,
            "on",
            "compute constant subgraphs once at load and keep their results",
            call=_entry("off", "optimization.disable_specified_optimizers", "ConstantFolding"),
        ),
        Knob(
            "mem_pattern",
            ON_OFF,
            "on",
            "plan all activations of a run as one block",
            call="SessionOptions.enable_mem_pattern = {flag}",
        ),
        Knob("arena", ON_OFF, "on", "the CPU memory arena", call="SessionOptions.enable_cpu_mem_arena = {flag}"),
        Knob(
            "arena_shrink",
            ON_OFF,
            "off",
            "give unused arena blocks back at the end of every run",
            call={"on": 'RunOptions.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0") for each run'},
        ),
        Knob(
            "weights",
            ("embedded", "separate"),
            None,
            "weights inside the model file, or beside it as external data that is mapped",
            acts="build",
            call={
                "embedded": "onnx.save_model(model, path), and InferenceSession loads that file",
                "separate": "onnx.save_model(model, path, save_as_external_data=True), and InferenceSession loads that file",
            },
        ),
        Knob(
            "format",
            ("onnx", "ort"),
            "onnx",
            "onnx: the model's file as it is; ort: converted to ONNX Runtime's own format, which holds the graph as optimised: "
            "write the .ort file while you build the image, on the kind of CPU that runs it: converting takes the default's peak",
            acts="build",
            call={
                "ort": 'SessionOptions.optimized_model_filepath and add_session_config_entry("session.save_model_format", "ORT") write the .ort '
                "file while you build the image, on the kind of CPU that runs it, and InferenceSession loads that file in place of the .onnx file"
            },
        ),
        Knob(
            "order",
            ("default", "priority", "memory_efficient"),
            "default",
            "the order in which operators run",
            call=_by_value("SessionOptions.execution_order = ExecutionOrder.{name}", _ORDERS),
        ),
        Knob(
            "mode",
            ("sequential", "parallel"),
            "sequential",
            "run independent operators one after another or side by side",
            call=_by_value("SessionOptions.execution_mode = ExecutionMode.{name}", _MODES),
        ),
        Knob(
            "provider",
            tuple(_PROVIDERS),
            "cpu",
            "execution provider",
            call=_by_value('InferenceSession(path, options, providers=["{name}"])', _PROVIDERS),
        ),
        Knob(
            "spinning",
            ON_OFF,
            "on",
            "idle threads spin before they sleep",
            call=_entry("off", "session.intra_op.allow_spinning", "0"),
        ),
    )

    def __init__(self):
        import onnxruntime

        self.ort = onnxruntime
        self.version = onnxruntime.__version__
        self.notes = _telemetry_notes(self.version)
        self._feed = {}
        self._run_options = None
        try:
            from onnxruntime.capi import _pybind_state

            self._core = _pybind_state.InferenceSession
            _pybind_state.InferenceSession.initialize_session  # noqa: B018  (the private call that makes two phases of one)
        except (ImportError, AttributeError):
            self._core = None
            self.notes.append(f"onnxruntime {self.version} does not let loading be separated: MODEL_LOAD includes PREPARE")

    def load(self, model, options):
        settings = self._settings(options)
        self._providers = [_PROVIDERS[options.knobs["provider"]]]
        missing = [name for name in self._providers if name not in self.ort.get_available_providers()]
        if missing:
            raise Refused(f"this build of onnxruntime has no {missing[0]}")
        if options.knobs["arena_shrink"]:
            self._run_options = self.ort.RunOptions()
            self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        if self._core is None:
            self._session = self.ort.InferenceSession(model, settings, providers=self._providers)
            return
        disabled = set() if options.knobs["constant_folding"] else {"ConstantFolding"}
        self._disabled = disabled
        self._session = self._core(settings, model, True, False)

    def prepare(self):
        if self._core is not None:
            self._session.initialize_session(self._providers, [{}], self._disabled)

    def signature(self):
        inputs = []
        for argument in self._arguments("input"):
            if argument.type not in _TYPES:
                raise Refused(f"input {argument.name} is a {argument.type}, for which no input can be made: give --inputs FILE.npz")
            shape = tuple(size if isinstance(size, int) and size > 0 else None for size in argument.shape)
            inputs.append((argument.name, shape, _TYPES[argument.type]))
        return inputs

    def set_inputs(self, arrays):
        self._feed = arrays
        self._outputs = [argument.name for argument in self._arguments("output")]

    def execute(self):
        return self._session.run(self._outputs, self._feed, self._run_options)

    def outputs(self):
        return self.execute()

    def _arguments(self, side):
        # The private session has lists where the public one has methods.
        arguments = getattr(self._session, side + "s_meta", None)
        return arguments if arguments is not None else getattr(self._session, f"get_{side}s")()

    def _settings(self, options):
        knobs, ort = options.knobs, self.ort
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[knobs["optimization"]])
        settings.enable_mem_pattern = knobs["mem_pattern"]
        settings.enable_cpu_mem_arena = knobs["arena"]
        settings.execution_mode = getattr(ort.ExecutionMode, _MODES[knobs["mode"]])
        if knobs.get("order", "default") != "default":  # a knob that onnxruntime-native, which builds models here too, has not
            settings.execution_order = getattr(ort.ExecutionOrder, _ORDERS[knobs["order"]])
        if options.threads:
            settings.intra_op_num_threads = options.threads
            settings.inter_op_num_threads = options.threads if knobs["mode"] == "parallel" else 1
        if not knobs["prepacking"]:
            settings.add_session_config_entry("session.disable_prepacking", "1")
        if not knobs["constant_folding"]:
            settings.add_session_config_entry("optimization.disable_specified_optimizers", "ConstantFolding")
        if not knobs["spinning"]:
            settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return settings

    @staticmethod
    def build(model, folder, options):
        """Write the model with external data, or in ONNX Runtime's own format, into the folder; return the new model's path."""
        stem = os.path.splitext(os.path.basename(model))[0]
        if options.knobs["format"] == "ort" and options.knobs["weights"] == "separate":
            raise Refused("format=ort and weights=separate exclude each other: an .ort model holds its weights")
        if options.knobs["weights"] is not None:
            model = _with_weights(model, os.path.join(folder, stem + ".onnx"), options.knobs["weights"])
        if options.knobs["format"] == "ort" and not model.endswith(".ort"):
            model = _as_ort(model, os.path.join(folder, stem + ".ort"), Runtime()._settings(options))
        return model


def _with_weights(model, target, where):
    try:
        import onnx
    except ImportError:
        raise Refused("weights=embedded|separate needs the package onnx: pip install onnx") from None
    from google.protobuf.message import EncodeError

    if model.endswith(".ort"):
        raise Refused(f"weights={where} needs an .onnx model")
    graph = onnx.load(model)
    separate = where == "separate"
    try:
        onnx.save_model(
            graph,
            target,
            save_as_external_data=separate,
            all_tensors_to_one_file=True,
            location=os.path.basename(target) + ".data" if separate else None,
            size_threshold=1024,
        )
    except (EncodeError, ValueError) as error:
        raise Refused(f"the model cannot be written with its weights {where} (an .onnx file holds at most 2 GiB): {error}") from None
    return target


def _as_ort(model, target, settings):
    import onnxruntime

    settings.optimized_model_filepath = target
    settings.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return target


def _telemetry_notes(version):
    """What a program that leaves ONNX Runtime's telemetry on has beside the figures here (see docs/numbers.md)."""
    release = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if os.environ.get("ORT_DISABLE_TELEMETRY") != "1" or release < _TELEMETRY_SINCE:
        return []
    return ["ONNX Runtime's telemetry is off, which takes about 2.6 MiB in a program that leaves it on"]

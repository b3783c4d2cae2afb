"""OpenVINO on the CPU, through its Python package: read_model loads, compile_model prepares. Seen with 2026.4."""

import os

from . import ON_OFF, Knob, Refused, in_words, open_note, primitive_cache


class Runtime:
    distribution = "openvino"
    formats = (".onnx", ".xml", ".tflite")
    default_threads = None
    threads_call = 'compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": {value}})'
    knobs = (
        Knob(
            "format",
            ("ir", "ir_f16"),
            None,
            "convert the model to OpenVINO's own format, whose weights can be mapped; ir_f16 halves them",
            acts="build",
            call={
                "ir": "openvino.save_model(core.read_model(path), target, compress_to_fp16=False), and compile_model loads target",
                "ir_f16": "openvino.save_model(core.read_model(path), target, compress_to_fp16=True), and compile_model loads target",
            },
        ),
        Knob(
            "mmap",
            ON_OFF,
            "on",
            "map weights that lie in separate files (.xml, ONNX external data) instead of reading them",
            call='core.set_property({"ENABLE_MMAP": {flag}})',
        ),
        Knob(
            "precision",
            ("f32", "bf16", "f16"),
            None,
            "the type to compute in, where the CPU has it (its own: the smallest that is fast)",
            call='compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "{value}"})',
        ),
        Knob(
            "performance",
            ("latency", "throughput"),
            "latency",
            "one stream on all threads, or several side by side",
            call={"throughput": 'compile_model(model, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT"})'},
        ),
        Knob(
            "streams",
            "int",
            None,
            "how many inferences can run at once, each with separate activations",
            call='compile_model(model, "CPU", {"NUM_STREAMS": {value}})',
        ),
        Knob(
            "cpu_runtime_cache",
            "int",
            None,
            "how many kernels made for dynamic shapes are kept for when such a shape comes again; 0 keeps none (its own: 5000 on x86-64)",
            tries=("0",),
            bounds="entries",
            call='compile_model(model, "CPU", {"CPU_RUNTIME_CACHE_CAPACITY": {value}})',
        ),
        primitive_cache(needs={"cpu_runtime_cache": "0"}),  # the CPU plugin's cache holds the same primitives (2026.4)
        Knob(
            "model_cache",
            "path",
            None,
            "a folder where compiled models are kept; the first run fills it, later ones read it",
            call='core.set_property({"CACHE_DIR": "{value}"})',
        ),
    )

    def __init__(self):
        import openvino

        self.openvino = openvino
        self.version = openvino.__version__.split("-")[0]
        self.notes = []
        # It loads the CPU plugin only when a model is compiled.
        self._core = openvino.Core()

    def load(self, model, options):
        self._settings = _settings(options)
        self._precision = options.knobs["precision"]
        self._core.set_property({"ENABLE_MMAP": options.knobs["mmap"]})
        self._cached = options.knobs["model_cache"] is not None
        if self._cached:
            self._core.set_property({"CACHE_DIR": options.knobs["model_cache"]})
        self._model = self._core.read_model(model)
        if options.varied:
            _check_shapes(self._model, options.varied[-1])
        open_names = _open_names(self._model)
        shapes = {**options.shapes, **options.dynamic}
        if shapes:
            self._model.reshape({name: [-1 if size is None else size for size in shape] for name, shape in shapes.items()})
        left = _open_names(self._model)
        fixed = {name: shapes[name] for name in open_names if name in shapes and name not in left}
        self.notes += open_note(left, fixed)

    def prepare(self):
        self._compiled = self._core.compile_model(self._model, "CPU", self._settings)
        self._request = self._compiled.create_infer_request()
        # The model as it was read is not needed any more; beside a compiled model from the cache it would be a second copy.
        del self._model
        # A precision that the CPU lacks is accepted and not used.
        chosen = self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        if self._precision and chosen != self._precision:
            self.notes.append(f"this CPU does not compute in {self._precision}: OpenVINO takes {chosen}")
        if self._cached:
            cached = self._compiled.get_property("LOADED_FROM_CACHE")
            self.notes.append("the compiled model came from the cache" if cached else "the compiled model was put into the cache")

    def signature(self):
        inputs = []
        for name, port in self._ports():
            sizes = port.get_partial_shape()
            if sizes.rank.is_dynamic:
                raise Refused(f"input {name} has no shape in the model: give it one")
            shape = tuple(None if size.is_dynamic else size.get_length() for size in sizes)
            inputs.append((name, shape, port.get_element_type().to_dtype().name))
        return inputs

    def set_inputs(self, arrays):
        self._arrays = arrays  # shared with the tensors
        for name, port in self._ports():
            self._request.set_tensor(port, self.openvino.Tensor(arrays[name], shared_memory=True))

    def execute(self):
        # The inputs stay where they are, and the outputs in the request.
        self._request.infer()

    def outputs(self):
        return [tensor.data for tensor in self._request.output_tensors]

    def _ports(self):
        return _named_ports(self._compiled)

    @staticmethod
    def build(model, folder, options):
        """Write the model in OpenVINO's format into the folder; return the new model's path."""
        if options.knobs["format"] is None:
            return model
        import openvino

        target = os.path.join(folder, os.path.splitext(os.path.basename(model))[0] + ".xml")
        openvino.save_model(openvino.Core().read_model(model), target, compress_to_fp16=options.knobs["format"] == "ir_f16")
        return target


def _named_ports(model):
    return [(min(port.names) if port.names else f"input_{index}", port) for index, port in enumerate(model.inputs)]


def _open_names(model):
    return [name for name, port in _named_ports(model) if port.get_partial_shape().is_dynamic]


def _check_shapes(model, shapes):
    """Raise Refused if the graph fixes what depends on the inputs' shapes. With open dimensions OpenVINO would compute something (2026.4)."""
    try:
        model.reshape({name: list(shape) for name, shape in shapes.items()})
    except RuntimeError as error:
        raise Refused(f"the model cannot be fed {in_words(shapes)}: {str(error).strip().splitlines()[-1]}") from None


def _settings(options):
    knobs = options.knobs
    settings = {"PERFORMANCE_HINT": knobs["performance"].upper()}
    if options.threads:
        settings["INFERENCE_NUM_THREADS"] = options.threads
    if knobs["precision"]:
        settings["INFERENCE_PRECISION_HINT"] = knobs["precision"]
    if knobs["streams"]:
        settings["NUM_STREAMS"] = knobs["streams"]
    if knobs["cpu_runtime_cache"] is not None:
        settings["CPU_RUNTIME_CACHE_CAPACITY"] = knobs["cpu_runtime_cache"]
    return settings

"""LiteRT, TensorFlow Lite's successor, through the package ai-edge-litert: its Interpreter, or its newer CompiledModel.

CompiledModel loads and prepares in one step, so that with it MODEL_LOAD includes nearly all of PREPARE. Only it can keep XNNPACK's
repacked weights in a file. Seen with 2.3.
"""

import math
import os

from inputs import names_in

from . import ON_OFF, Knob, Refused
from ._interpreter import KNOBS, InterpreterRuntime, source

_CACHE = ".xnnpack_cache"

# What CompiledModel takes in place of the Interpreter's words.
_COMPILED = {
    "xnnpack": "CpuOptions(kernel_mode=CpuKernelMode.BUILTIN)",
    "kernels": "CpuOptions(kernel_mode=CpuKernelMode.REFERENCE)",
    "source": "CompiledModel.from_buffer(...)",
}


def _both_ways(knob):
    """The words of an Interpreter's knob, and those of CompiledModel where it has the knob too."""
    if knob.name not in _COMPILED:
        return knob.call
    return {value: "%s; of CompiledModel: %s" % (text, _COMPILED[knob.name]) for value, text in knob.call.items()}


class Runtime(InterpreterRuntime):
    distribution = "ai-edge-litert"
    knobs = tuple(knob.calling(_both_ways(knob)) for knob in KNOBS) + (
        Knob(
            "node_fusion",
            ON_OFF,
            "on",
            "hand connected operators to XNNPACK together rather than one by one",
            call={"off": "Interpreter(..., experimental_disable_delegate_node_fusion=True)"},
            needs={"api": "interpreter"},
        ),
        Knob(
            "api",
            ("interpreter", "compiled_model"),
            "interpreter",
            "which of LiteRT's two interfaces executes the model",
            call={"compiled_model": "CompiledModel.from_file(path, options=Options(cpu_options=CpuOptions(...)))"},
        ),
        Knob(
            "weight_cache",
            ON_OFF,
            "off",
            "XNNPACK's repacked weights lie in a file made beforehand and are mapped from it",
            acts="build",
            call={"on": "CpuOptions.xnnpack_weight_cache_path = path"},
            needs={"api": "compiled_model"},
        ),
    )

    def __init__(self):
        import ai_edge_litert

        self.version = ai_edge_litert.__version__
        self._compiled = None

    def imports(self, model, options):
        if options.knobs["api"] == "interpreter":
            from ai_edge_litert import interpreter

            self._use(interpreter, self.version)
            return
        try:
            from ai_edge_litert import compiled_model
        except ImportError:
            raise Refused(f"ai-edge-litert {self.version} has no CompiledModel") from None  # before 2.0
        self._use(compiled_model, self.version)

    def load(self, model, options):
        if options.knobs["api"] == "interpreter":
            if options.knobs["weight_cache"]:
                raise Refused("weight_cache=on needs api=compiled_model: LiteRT's Interpreter has no weight cache")
            super().load(model, options)
            return
        if options.knobs["preserve_all_tensors"] or not options.knobs["node_fusion"]:
            raise Refused("preserve_all_tensors=on and node_fusion=off need api=interpreter")
        self.notes.append("CompiledModel loads and prepares in one step: MODEL_LOAD includes PREPARE, except for inputs and outputs")
        self._shapes = options.shapes
        # An input has two names: its tensor's, as the Interpreter and the model's file call it, and the signature's, which the job may use too.
        self._given = {*options.shapes, *options.values, *names_in(options.inputs), *options.dynamic}
        self._compiled = _compile(self._module, model, options)
        self._key = next(iter(self._compiled.get_signature_list()))

    def prepare(self):
        if self._compiled is None:
            super().prepare()
            return
        for name, tensor in self._compiled.get_input_tensor_details(self._key).items():
            shape = self._shapes.get(tensor["name"], self._shapes.get(name))
            if shape is not None:
                self._compiled.resize_input_tensor_by_name(self._key, name, shape, strict=False)
        self._make_buffers(self._compiled)

    def _make_buffers(self, compiled):
        self._inputs = compiled.create_input_buffers(0)
        self._outputs = compiled.create_output_buffers(0)

    def signature(self):
        if self._compiled is None:
            return super().signature()
        inputs = []
        for name in self._compiled.get_signature_by_index(0)["inputs"]:
            tensor = self._compiled.get_input_tensor_details(self._key)[name]
            shape = tuple(size if size >= 0 else None for size in tensor["shape"])
            inputs.append((name if name in self._given else tensor["name"], shape, tensor["dtype"]))
        return inputs

    def set_inputs(self, arrays):
        if self._compiled is None:
            super().set_inputs(arrays)
            return
        tensors = self._compiled.get_input_tensor_details(self._key)
        arrays = {name: arrays[name if name in arrays else tensor["name"]] for name, tensor in tensors.items()}
        resized = [name for name, tensor in tensors.items() if tuple(tensor["shape"]) != arrays[name].shape]
        for name in resized:
            self._compiled.resize_input_tensor_by_name(self._key, name, arrays[name].shape, strict=False)
        if resized:  # buffers have the size that the tensors had when they were made
            self._make_buffers(self._compiled)
        for buffer, name in zip(self._inputs, self._compiled.get_signature_by_index(0)["inputs"]):
            buffer.write(arrays[name])

    def execute(self):
        if self._compiled is None:
            super().execute()
        else:
            self._compiled.run_by_index(0, self._inputs, self._outputs)

    def outputs(self):
        if self._compiled is None:
            return super().outputs()
        details = self._compiled.get_output_tensor_details(self._key)
        arrays = []
        for buffer, name in zip(self._outputs, self._compiled.get_signature_by_index(0)["outputs"]):
            shape = details[name]["shape"]
            arrays.append(buffer.read(math.prod(shape), details[name]["dtype"]).reshape(shape))
        return arrays

    def _settings(self, options):
        settings = super()._settings(options)
        if not options.knobs["node_fusion"]:  # an argument that early versions lack
            settings["experimental_disable_delegate_node_fusion"] = True
        return settings

    @staticmethod
    def build(model, folder, options):
        """Copy the model into the folder and have XNNPACK write its cache beside it; return the copy's path."""
        if not options.knobs["weight_cache"]:
            return model
        import shutil

        from ai_edge_litert import compiled_model

        copy = os.path.join(folder, os.path.basename(model))
        shutil.copyfile(model, copy)
        _compile(compiled_model, copy, options)
        if not os.path.isfile(copy + _CACHE):
            raise Refused("XNNPACK wrote no weight cache: it takes none of this model's operators, or is switched off")
        return copy


def _compile(package, model, options):
    cpu = package.CpuOptions(num_threads=options.threads or 1, kernel_mode=_kernels(package.CpuKernelMode, options.knobs))
    if options.knobs["weight_cache"]:
        cpu.xnnpack_weight_cache_path = model + _CACHE
    settings = package.Options(cpu_options=cpu)
    content = source(model, options).get("model_content")
    if content is None:
        return package.CompiledModel.from_file(model, options=settings)
    return package.CompiledModel.from_buffer(content, options=settings)


def _kernels(modes, knobs):
    if knobs["kernels"] == "reference":
        return modes.REFERENCE
    return modes.DELEGATE if knobs["xnnpack"] else modes.BUILTIN

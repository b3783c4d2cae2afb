"""PyTorch: a program of torch.export (.pt2), a package of AOTInductor (.pt2 too), or a Python file that returns a module. Seen with 2.13.

The Python file has a function `model()` that returns the module, and `inputs()` that returns its example inputs, a tuple of tensors.

MODEL_LOAD reads the .pt2, or calls `model()`. PREPARE makes the module from the graph; with compile=inductor it compiles too, which torch does in
a first call, so that call is in PREPARE. An AOTInductor package is a library: MODEL_LOAD opens it and reads its weights, and nothing is left to
prepare.

It runs on the CPU, but for a module whose parameters are on another device: its inputs are put there too, and an iteration lasts until CUDA is done.
"""

import json
import os
import shutil
import sys
import zipfile

from . import ON_OFF, Knob, Refused, primitive_cache

_COMPILERS = ("g++", "clang++", "c++")
_ABOUT = "memprof_inputs"  # in the metadata of packages that memprof builds
_AOTI = "/data/aotinductor/"


class Runtime:
    distribution = "torch"
    needs = ("numpy",)
    formats = (".pt2", ".py")
    default_threads = None
    threads_call = "torch.set_num_threads({value})"
    knobs = (
        Knob(
            "compile",
            ("off", "inductor"),
            "off",
            "eager, or compiled by inductor in PREPARE; that takes a C++ compiler",
            call={"inductor": 'torch.compile(module, backend="inductor")'},
        ),
        Knob(
            "package",
            ("aoti",),
            None,
            "compile the .pt2 into a package of AOTInductor first; that takes a C++ compiler",
            acts="build",
            call={"aoti": "torch._inductor.aoti_compile_and_package(program, package_path=path), and aoti_load_package(path) loads that"},
        ),
        Knob(
            "grad",
            ON_OFF,
            "off",
            "keep what a backward step would need, as a model that trains does",
            call="torch.set_grad_enabled({flag})",
        ),
        primitive_cache(),
        Knob(
            "mkldnn",
            ON_OFF,
            "on",
            "oneDNN's kernels; without them torch's own, slower ones, and fewer pages of its libraries",
            call="torch.backends.mkldnn.set_flags({flag})",
        ),
    )

    def __init__(self):
        import torch

        self.torch = torch
        self.version = torch.__version__
        self.notes = []
        self._device = "cpu"

    def imports(self, model, options):
        if model.endswith(".pt2") and not _is_package(model):
            import torch._export.serde.serialize  # noqa: F401  (70 MiB in 2.13, which torch.export.load would import)

    def load(self, model, options):
        torch = self.torch
        if options.threads:
            torch.set_num_threads(options.threads)
        if not options.knobs["mkldnn"]:
            torch.backends.mkldnn.set_flags(False)
        torch.set_grad_enabled(options.knobs["grad"])
        self._options = options
        self._compiles = options.knobs["compile"] == "inductor"
        if self._compiles:
            _need_compiler("compile=inductor")
        self._program = None
        if model.endswith(".py"):
            self._from_python(model)
        elif _is_package(model):
            if self._compiles:
                raise Refused("%s is a package of AOTInductor, which is compiled already" % os.path.basename(model))
            self._from_package(model)
        else:
            self._program = torch.export.load(model)
            self._inputs = _inputs_of(torch, self._program)

    def _from_python(self, path):
        from importlib import util

        sys.path.insert(1, os.path.dirname(os.path.abspath(path)))
        spec = util.spec_from_file_location("memprof_user_model", path)
        if spec is None or spec.loader is None:
            raise Refused("%s is no Python file" % os.path.basename(path))
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name in ("model", "inputs"):
            if not callable(getattr(module, name, None)):
                raise Refused(
                    "%s has no function %s(): model() returns the module, inputs() a tuple of tensors" % (os.path.basename(path), name)
                )
        self._module = module.model()
        if not isinstance(self._module, self.torch.nn.Module):
            raise Refused("model() of %s returned a %s, not a torch.nn.Module" % (os.path.basename(path), type(self._module).__name__))
        self._module.eval()
        self._inputs = [("input_%d" % index, tuple(each.shape), _name(each.dtype)) for index, each in enumerate(module.inputs())]

    def _from_package(self, path):
        # torch._inductor.aoti_load_package, without the import of inductor (80 MiB in 2.13), which a deployed program has not either.
        package = self.torch._C._aoti.AOTIModelPackageLoader(path, "model", False, 1, -1)
        self._module = lambda *arguments: package.boxed_run(list(arguments))
        self.notes.append("a package of AOTInductor is ready when it is loaded: nothing is left for PREPARE")
        about = package.get_metadata().get(_ABOUT)
        if about is None and not self._options.inputs:
            raise Refused(
                "this package of AOTInductor does not say which inputs it takes: give --inputs FILE.npz, with arrays in their order"
            )
        self._inputs = (
            [(name, tuple(shape), dtype) for name, shape, dtype in json.loads(about)] if about else _of_arrays(self._options.inputs)
        )

    def prepare(self):
        torch = self.torch
        if self._program is not None:
            self._module = self._program.module()
            self._program = None  # it holds the graph a second time; the weights are shared
        if isinstance(self._module, torch.nn.Module):  # else of a package
            self._device = next((parameter.device for parameter in self._module.parameters()), "cpu")
        if self._compiles:
            from torch._inductor import config

            # What an earlier run compiled would make this one another; and processes beside this one would not be measured.
            config.force_disable_caches, config.compile_threads = True, 1
            self._module = torch.compile(self._module, backend="inductor")
            shapes = [self._options.shapes.get(name, shape) for name, shape, _ in self._inputs]
            zeros = [
                torch.zeros(_closed(shape), dtype=getattr(torch, dtype), device=self._device)
                for shape, (_, _, dtype) in zip(shapes, self._inputs)
            ]
            self._module(*zeros)
            self.notes.append("PREPARE has one execution in it: inductor compiles in the first call")

    def signature(self):
        return self._inputs

    def set_inputs(self, arrays):
        self._arguments = [self.torch.from_numpy(arrays[name]).to(self._device) for name, _, _ in self._inputs]

    def execute(self):
        self._result = self._module(*self._arguments)
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()

    def outputs(self):
        result = self._module(*self._arguments)
        return [each.detach().cpu().numpy() for each in _flat(result)]

    def figures(self):
        """The peaks of torch's own allocator in the phase, on all devices of CUDA together; each begins again. None where CUDA is not in use: to ask
        whether it is there would take memory."""
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            return {}
        devices = range(cuda.device_count())
        allocated, reserved = (sum(map(most, devices)) for most in (cuda.max_memory_allocated, cuda.max_memory_reserved))
        for device in devices:
            cuda.reset_peak_memory_stats(device)
        return {"torch_allocated_peak_bytes": allocated, "torch_reserved_peak_bytes": reserved}

    @staticmethod
    def build(model, folder, options):
        """Compile an exported program into a package of AOTInductor in the folder; return the file's path."""
        if options.knobs["package"] is None:
            return model
        _need_compiler("package=aoti")
        if model.endswith(".py") or _is_package(model):
            raise Refused("package=aoti needs a .pt2 of torch.export, not %s" % os.path.basename(model))
        import torch

        program = torch.export.load(model)
        target = os.path.join(folder, os.path.splitext(os.path.basename(model))[0] + ".pt2")
        inputs = _inputs_of(torch, program)
        settings = {"aot_inductor.metadata": {_ABOUT: json.dumps(inputs)}}
        return torch._inductor.aoti_compile_and_package(program, package_path=target, inductor_configs=settings)


def _need_compiler(subject):
    if not (os.environ.get("CXX") or any(map(shutil.which, _COMPILERS))):
        raise Refused("%s needs a C++ compiler, such as g++" % subject)


def _is_package(path):
    """Whether a .pt2 is a package of AOTInductor. Raises Refused if it is no .pt2 at all."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(_AOTI in name for name in archive.namelist())
    except zipfile.BadZipFile:
        raise Refused("%s is no .pt2: it is no zip archive" % os.path.basename(path)) from None


def _inputs_of(torch, program):
    """(name, shape, dtype) of an exported program's inputs, a dimension None where it is open. Raises Refused for inputs that are no tensors."""
    users = set(program.graph_signature.user_inputs)
    inputs = []
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name not in users:
            continue
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise Refused("input %s is a %s, for which no input can be made" % (node.name, type(value).__name__))
        inputs.append((node.name, tuple(size if isinstance(size, int) else None for size in value.shape), _name(value.dtype)))
    return inputs


def _of_arrays(path):
    import inputs

    return [(name, array.shape, array.dtype.name) for name, array in inputs.arrays(path).items()]


def _closed(shape):
    return tuple(1 if size is None else size for size in shape)


def _name(dtype):
    return str(dtype).replace("torch.", "")


def _flat(result):
    """The tensors of a result: alone, or in a tuple, list or dictionary."""
    if isinstance(result, dict):
        result = list(result.values())
    return [each for part in result for each in _flat(part)] if isinstance(result, (tuple, list)) else [result]

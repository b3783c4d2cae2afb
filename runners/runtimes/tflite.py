"""TensorFlow Lite, through the package tflite-runtime, which ended with 2.14 and needs numpy before 2."""

from ._interpreter import KNOBS, InterpreterRuntime


class Runtime(InterpreterRuntime):
    distribution = "tflite-runtime"
    needs = ("numpy<2",)  # it was built against numpy 1
    knobs = KNOBS

    def __init__(self):
        import tflite_runtime
        from tflite_runtime import interpreter

        self._use(interpreter, tflite_runtime.__version__)

    def load(self, model, options):
        preserving, without = options.knobs["preserve_all_tensors"], not options.knobs["xnnpack"]
        if preserving and not without:
            self.notes.append("tflite-runtime switches XNNPACK off when it preserves all tensors")
        # Seen in 2.14: a pool of 4 beside the main thread, whatever the machine.
        if options.threads is None and (preserving or without) and options.knobs["kernels"] == "optimized":
            self.notes.append("without XNNPACK tflite-runtime takes 4 threads for convolutions unless a number is given")
        super().load(model, options)

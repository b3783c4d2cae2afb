"""onert's own training (onert.experimental.train of its wheel) with marks: one model, random data, a number of epochs.

    memprof zoo mnist --format tflite -o mnist.tflite
    cp "$(memprof marks --python)" .      # memprof_marks.py, beside this script
    memprof run mnist.tflite --cmd 'sgd=python onert_train.py {model} --epochs {runs}' \\
                             --cmd 'adam=python onert_train.py {model} --epochs {runs} --optimizer adam' --runs 5 -o runs.jsonl
    memprof table runs.jsonl --style swap --window EXECUTE

STARTUP ends with onert imported and no model loaded; PREPARE is the session's compile, which lays out gradients and the optimizer's
state; EXECUTE is the training, an iteration an epoch. The loss of each epoch and the bytes of one batch are reported as values.
"""

import argparse

import numpy
from memprof_marks import iteration, phase, value
from onert.experimental.train import session as train_session
from onert.experimental.train.losses import CategoricalCrossentropy, MeanSquaredError
from onert.experimental.train.optimizer import SGD, Adam


def main():
    words = arguments()
    random = numpy.random.default_rng(0)
    with phase("MODEL_LOAD"):
        session = train_session(words.model)
    loss = CategoricalCrossentropy() if words.loss == "cce" else MeanSquaredError()
    optimizer = (Adam if words.optimizer == "adam" else SGD)(learning_rate=words.learning_rate)
    with phase("PREPARE"):
        session.compile(optimizer=optimizer, loss=loss, batch_size=words.batch_size)
    inputs, expected = batch(session.session, words.batch_size, random, words.loss)
    value("batch_bytes", inputs.nbytes + expected.nbytes)
    with phase("EXECUTE"):
        for _ in range(words.epochs):
            losses = [session.train_step([inputs], [expected])["loss"][0] for _ in range(words.steps)]
            iteration()
            value("loss", losses[-1])
    print("loss", losses[-1])


def batch(model, size, random, loss):
    """A batch of random inputs and of outputs to learn, in the model's own shapes with `size` in front."""
    tensors = [model.input_tensorinfo(0), model.output_tensorinfo(0)]
    shapes = [(size, *(int(length) for length in list(info.dims)[1 : info.rank])) for info in tensors]
    inputs, expected = (random.random(shape, dtype=numpy.float32) for shape in shapes)
    if loss == "cce":
        expected = numpy.eye(shapes[1][-1], dtype=numpy.float32)[random.integers(0, shapes[1][-1], size)].reshape(shapes[1])
    return inputs, expected


def arguments():
    parser = argparse.ArgumentParser(description="Train a model with onert.")
    parser.add_argument("model")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="batches an epoch")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--loss", choices=("mse", "cce"), default="mse")
    return parser.parse_args()


if __name__ == "__main__":
    main()

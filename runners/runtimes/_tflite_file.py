"""What runtimes of .tflite and .circle files do not tell about them, read from the file."""

from ._flatbuffers import FlatFile


def input_names(path):
    """The names of a .tflite or .circle file's inputs, read from the few places of the file where they stand.

    In both schemas a Model has subgraphs as field 2, a SubGraph tensors as 0 and inputs as 1, a Tensor its name as 3.
    """
    with open(path, "rb") as file:
        flat = FlatFile(file)
        graph = flat.tables(flat.follow(0), 2)[0]
        tensors, _ = flat.vector(graph, 0)
        start, count = flat.vector(graph, 1)
        return [flat.text(flat.follow(tensors + 4 * index), 3) for index in flat.values("%di" % count, start)]

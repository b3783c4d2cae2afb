"""What runtimes of .tflite and .circle files do not tell about them, read from the file."""

import struct


def input_names(path):
    """The names of a .tflite or .circle file's inputs, read from the few places of the file where they stand.

    A FlatBuffers table begins with the distance back to its vtable: two sizes (16 bits each), then each field's offset in the table. In
    both schemas a Model has subgraphs as field 2, a SubGraph tensors as 0 and inputs as 1, a Tensor its name as 3.
    """
    with open(path, "rb") as file:

        def read(format, place):
            file.seek(place)
            return struct.unpack("<" + format, file.read(struct.calcsize("<" + format)))[0]

        def indirect(place):
            return place + read("I", place)

        def field(table, number):
            vtable = table - read("i", table)
            return indirect(table + read("H", vtable + 4 + 2 * number))

        # A vector is its length and then its elements; of tables, the elements are distances to them.
        graph = indirect(field(indirect(0), 2) + 4)
        tensors, inputs = field(graph, 0) + 4, field(graph, 1)
        names = []
        for index in range(read("I", inputs)):
            tensor = indirect(tensors + 4 * read("i", inputs + 4 + 4 * index))
            name = field(tensor, 3)
            names.append(read("%ds" % read("I", name), name + 4).decode("utf-8"))
        return names

/* memprof's native runner for onert: the wheel's own libonert.so through its C interface. The contract stands in runner.h.
 *
 * The interface is runtime/onert/api/nnfw/include/nnfw.h and nnfw_experimental.h of Samsung's ONE; the needed part is declared here, because
 * the wheel carries no headers. Seen with 0.1.0. It makes the same calls as runners/runtimes/onert.py.
 */
#include "runner.h"

#define NNFW_MAX_RANK 6
#define NNFW_INTERNAL_OUTPUTS 1 /* NNFW_ENABLE_INTERNAL_OUTPUT_ALLOC */

struct nnfw_info {
    int type;
    int32_t rank;
    int32_t dims[NNFW_MAX_RANK];
};

/* By nnfw's type number: float32, int32, quantized uint8, bool, uint8, int64, quantized int8, quantized int16. */
static const size_t TYPE_BYTES[] = {4, 4, 1, 1, 1, 8, 1, 2};
static const char TYPE_KINDS[] = "fiubuiii"; /* as runner_input takes them */
#define TYPES ((int)(sizeof TYPE_BYTES / sizeof *TYPE_BYTES))

static int (*run_session)(void *), (*close_session)(void *);
static void *session, **arrays;
static uint32_t count;

static void check(int status, const char *what) {
    static const char *const words[] = {"", "error", "unexpected null", "invalid state", "out of memory", "insufficient output size", "deprecated"};
    if (status != 0) runner_fail("error", "%s failed: %s", what, status > 0 && status < 7 ? words[status] : "unknown status");
}

static void execute(void) { check(run_session(session), "nnfw_run"); }

static void release(void) {
    uint32_t index;
    check(close_session(session), "nnfw_close_session");
    for (index = 0; index < count; ++index) free(arrays[index]);
}

/* -- names of inputs, which onert does not tell: from the model file, as runners/runtimes/onert.py reads them */

struct flat {
    int file, bad;
};

static int64_t flat_read(struct flat *flat, int64_t place, size_t bytes) {
    uint32_t value = 0;
    if (place < 0 || pread(flat->file, &value, bytes, place) != (ssize_t)bytes) flat->bad = 1;
    return flat->bad ? 0 : bytes == 4 ? (int64_t)(int32_t)value : (int64_t)value;
}

static int64_t flat_indirect(struct flat *flat, int64_t place) { return place + (uint32_t)flat_read(flat, place, 4); }

static int64_t flat_field(struct flat *flat, int64_t table, int number) {
    int64_t offset = flat_read(flat, table - flat_read(flat, table, 4) + 4 + 2 * number, 2);
    if (offset == 0) flat->bad = 1;
    return flat_indirect(flat, table + offset);
}

/* The model file of an nnpackage's folder: the first of "models" in metadata/MANIFEST. A file stays as it is. */
static void model_file(const char *model, char *path, size_t size) {
    char text[4096], manifest[1200], *name, *end;
    struct stat about;
    snprintf(path, size, "%s", model);
    if (stat(model, &about) != 0 || !S_ISDIR(about.st_mode)) return;
    snprintf(manifest, sizeof manifest, "%s/metadata/MANIFEST", model);
    memprof_read(manifest, text, (int)sizeof text);
    name = strstr(text, "\"models\"");
    name = name ? strchr(name + 8, '[') : NULL;
    name = name ? strchr(name, '"') : NULL;
    end = name ? strchr(name + 1, '"') : NULL;
    if (end != NULL) snprintf(path, size, "%s/%.*s", model, (int)(end - name - 1), name + 1);
}

static char **input_names(const char *model, int count) {
    char **names = calloc((size_t)count + 1, sizeof *names), path[2400];
    struct flat flat = {-1, 0};
    int64_t graph, tensors, inputs, name, length;
    int index, other;
    model_file(model, path, sizeof path);
    flat.file = open(path, O_RDONLY | O_CLOEXEC);
    flat.bad = flat.file < 0;
    graph = flat_indirect(&flat, flat_field(&flat, flat_indirect(&flat, 0), 2) + 4);
    tensors = flat_field(&flat, graph, 0) + 4;
    inputs = flat_field(&flat, graph, 1);
    if (flat_read(&flat, inputs, 4) != count) flat.bad = 1;
    for (index = 0; index < count; ++index) {
        name = flat.bad ? 0 : flat_field(&flat, flat_indirect(&flat, tensors + 4 * flat_read(&flat, inputs + 4 + 4 * index, 4)), 3);
        length = flat.bad ? 0 : flat_read(&flat, name, 4);
        names[index] = calloc(length > 0 && length < 4096 ? (size_t)length + 1 : 32, 1);
        if (length <= 0 || length >= 4096 || pread(flat.file, names[index], (size_t)length, name + 4) != length) flat.bad = 1;
        for (other = 0; other < index; ++other) flat.bad |= strcmp(names[index], names[other]) == 0;
    }
    for (index = 0; flat.bad && index < count; ++index) {
        names[index] = calloc(32, 1);
        snprintf(names[index], 32, "input_%d", index);
    }
    if (flat.file >= 0) close(flat.file);
    return names;
}

/* -- the job */

int main(int argc, char **argv) {
    void *library = runner_open(argc, argv);
    int (*create)(void **) = (int (*)(void **))runner_function(library, "nnfw_create_session");
    int (*load)(void *, const char *) = (int (*)(void *, const char *))runner_function(library, "nnfw_load_model_from_file");
    int (*backends)(void *, const char *) = (int (*)(void *, const char *))runner_function(library, "nnfw_set_available_backends");
    int (*configure)(void *, int, const char *) = (int (*)(void *, int, const char *))runner_function(library, "nnfw_set_prepare_config");
    int (*prepare)(void *) = (int (*)(void *))runner_function(library, "nnfw_prepare");
    int (*input_size)(void *, uint32_t *) = (int (*)(void *, uint32_t *))runner_function(library, "nnfw_input_size");
    int (*get_info)(void *, uint32_t, struct nnfw_info *) = (int (*)(void *, uint32_t, struct nnfw_info *))runner_function(library, "nnfw_input_tensorinfo");
    int (*set_info)(void *, uint32_t, const struct nnfw_info *) =
        (int (*)(void *, uint32_t, const struct nnfw_info *))runner_function(library, "nnfw_set_input_tensorinfo");
    int (*set_input)(void *, uint32_t, int, const void *, size_t) =
        (int (*)(void *, uint32_t, int, const void *, size_t))runner_function(library, "nnfw_set_input");
    const char *version = runner_word("version", ""), *model = runner_model();
    int ruy = runner_set("backend", "ruy");
    struct runner_shape shape;
    struct nnfw_info info;
    uint32_t index;
    char **names;
    int size, changed;

    run_session = (int (*)(void *))runner_function(library, "nnfw_run");
    close_session = (int (*)(void *))runner_function(library, "nnfw_close_session");
    if (runner_number("threads", 0) > 0 && !ruy)
        runner_note("onert's convolutions use every CPU, with any number of threads");
    runner_about(version ? version : "");

    runner_begin("MODEL_LOAD");
    check(create(&session), "nnfw_create_session");
    check(load(session, model), "nnfw_load_model_from_file");
    check(backends(session, ruy ? "cpu;ruy" : "cpu"), "nnfw_set_available_backends");
    runner_end();

    check(input_size(session, &count), "nnfw_input_size");
    names = input_names(model, (int)count);
    runner_check_names(names, (int)count);
    runner_begin("PREPARE");
    for (index = 0; index < count; ++index) {
        check(get_info(session, index, &info), "nnfw_input_tensorinfo");
        changed = runner_given_shape(names[index], &shape);
        if (changed) {
            if (shape.rank > NNFW_MAX_RANK) runner_fail("refused", "onert takes at most %d dimensions", NNFW_MAX_RANK);
            info.rank = shape.rank;
            for (size = 0; size < shape.rank; ++size) info.dims[size] = (int32_t)shape.sizes[size];
        }
        for (size = 0; size < info.rank && size < NNFW_MAX_RANK; ++size) {
            if (info.dims[size] >= 0) continue;
            info.dims[size] = 1; /* an open dimension: nnfw_run fails if one was left when the session was prepared */
            changed = 1;
        }
        if (changed) check(set_info(session, index, &info), "nnfw_set_input_tensorinfo");
    }
    check(configure(session, NNFW_INTERNAL_OUTPUTS, "true"), "nnfw_set_prepare_config"); /* as the Python package needs it */
    check(prepare(session), "nnfw_prepare");
    runner_end();

    runner_phase = runner_number("warmup", 0) ? "WARMUP" : "EXECUTE";
    arrays = calloc(count + 1, sizeof *arrays);
    for (index = 0; index < count; ++index) {
        check(get_info(session, index, &info), "nnfw_input_tensorinfo");
        if (info.type < 0 || info.type >= TYPES || info.rank > NNFW_MAX_RANK) runner_fail("refused", "input '%s' has a type that is not known here", names[index]);
        shape.rank = info.rank;
        for (size = 0; size < info.rank; ++size) shape.sizes[size] = info.dims[size];
        arrays[index] = runner_input(names[index], (int)index, TYPE_KINDS[info.type], TYPE_BYTES[info.type], &shape);
        check(set_input(session, index, info.type, arrays[index], (size_t)runner_elements(&shape) * TYPE_BYTES[info.type]), "nnfw_set_input");
    }
    runner_about_made(version ? version : "");
    runner_iterate(execute);
    runner_release(release);
    runner_done();
    return 0;
}

/* memprof's native runner for ONNX Runtime: the wheel's own libonnxruntime.so through its C interface. The contract stands in runner.h.
 *
 * The interface is a table of functions (struct OrtApi in include/onnxruntime/core/session/onnxruntime_c_api.h) that only ever grows at its end: its
 * maintainers hold the place of each entry fixed from the version on that brought it, and static assertions in onnxruntime_c_api.cc check it. The wheel
 * carries no header, so the places of the entries that are needed stand here, all of version 8 or before (ONNX Runtime 1.8), and the program
 * requests version 8 of the table. Seen with 1.31. CreateSession loads and prepares in one step, which Python's private class does not.
 */
#include "runner.h"

#define ORT_VERSION 8
#define ORT_LOG_ERROR 3
#define ORT_ARENA_ALLOCATOR 1
#define ORT_MEMORY_DEFAULT 0

/* struct OrtApiBase: what OrtGetApiBase() returns. */
struct ort_base {
    const void *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

enum ort_place {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_SESSION_OPTIONS = 10,
    SET_EXECUTION_MODE = 13,
    ENABLE_MEM_PATTERN = 16,
    DISABLE_MEM_PATTERN = 17,
    ENABLE_CPU_MEM_ARENA = 18,
    DISABLE_CPU_MEM_ARENA = 19,
    SET_OPTIMIZATION = 23,
    SET_INTRA_THREADS = 24,
    SET_INTER_THREADS = 25,
    INPUT_COUNT = 30,
    OUTPUT_COUNT = 31,
    INPUT_TYPE_INFO = 33,
    INPUT_NAME = 36,
    OUTPUT_NAME = 37,
    CREATE_RUN_OPTIONS = 39,
    CREATE_TENSOR_WITH_DATA = 49,
    CAST_TO_TENSOR_INFO = 55,
    ELEMENT_TYPE = 60,
    DIMENSIONS_COUNT = 61,
    DIMENSIONS = 62,
    CREATE_CPU_MEMORY_INFO = 69,
    DEFAULT_ALLOCATOR = 78,
    RELEASE_MEMORY_INFO = 94,
    RELEASE_SESSION = 95,
    RELEASE_VALUE = 96,
    RELEASE_RUN_OPTIONS = 97,
    RELEASE_SESSION_OPTIONS = 100,
    ADD_SESSION_CONFIG = 130, /* version 5 */
    ADD_RUN_CONFIG = 165      /* version 8 */
};

/* ONNXTensorElementDataType by number: bytes an element, and its kind as runner_input takes it. */
static const struct {
    size_t bytes;
    char kind;
} TYPES[] = {{0, 0},   {4, 'f'}, {1, 'u'}, {1, 'i'}, {2, 'u'}, {2, 'i'}, {4, 'i'}, {8, 'i'},
             {0, 0},   {1, 'b'}, {2, 'f'}, {8, 'f'}, {4, 'u'}, {8, 'u'}};

static const void *const *api;
static void *session, *options, *run_options, *memory, **inputs, **arrays, **outputs;
static const char **input_names, **output_names;
static size_t input_count, output_count;

/* Each entry returns a status, NULL for success. */
static void check(void *status, const char *what) {
    if (status != NULL) runner_fail("error", "%s: %s", what, ((const char *(*)(const void *))api[GET_ERROR_MESSAGE])(status));
}

static void execute(void) {
    size_t index;
    check(((void *(*)(void *, const void *, const char *const *, const void *const *, size_t, const char *const *, size_t, void **))api[RUN])(
              session, run_options, input_names, (const void *const *)inputs, input_count, output_names, output_count, outputs),
          "Run");
    for (index = 0; index < output_count; ++index) {
        if (outputs[index] != NULL) ((void (*)(void *))api[RELEASE_VALUE])(outputs[index]);
        outputs[index] = NULL; /* the next run makes its own, as Python's does */
    }
}

static void config(void *options, const char *key, const char *value) {
    check(((void *(*)(void *, const char *, const char *))api[ADD_SESSION_CONFIG])(options, key, value), key);
}

static void set_switch(enum ort_place place, void *options, const char *what) { check(((void *(*)(void *))api[place])(options), what); }

static void set_number(enum ort_place place, void *options, int value, const char *what) {
    check(((void *(*)(void *, int))api[place])(options, value), what);
}

static void delete(enum ort_place place, void *object) {
    if (object != NULL) ((void (*)(void *))api[place])(object);
}

/* All but the environment, which was there at the baseline. */
static void release(void) {
    size_t index;
    for (index = 0; index < input_count; ++index) {
        delete(RELEASE_VALUE, inputs[index]);
        free(arrays[index]);
    }
    delete(RELEASE_SESSION, session);
    delete(RELEASE_SESSION_OPTIONS, options);
    delete(RELEASE_RUN_OPTIONS, run_options);
    delete(RELEASE_MEMORY_INFO, memory);
}

static void *settings(void) {
    int threads = runner_number("threads", 0), parallel = runner_set("mode", "parallel");
    int level = runner_set("optimization", "off") ? 0 : runner_set("optimization", "basic") ? 1 : runner_set("optimization", "extended") ? 2 : 99;
    check(((void *(*)(void **))api[CREATE_SESSION_OPTIONS])(&options), "CreateSessionOptions");
    set_number(SET_OPTIMIZATION, options, level, "SetSessionGraphOptimizationLevel");
    set_number(SET_EXECUTION_MODE, options, parallel, "SetSessionExecutionMode");
    set_switch(runner_set("mem_pattern", "off") ? DISABLE_MEM_PATTERN : ENABLE_MEM_PATTERN, options, "MemPattern");
    set_switch(runner_set("arena", "off") ? DISABLE_CPU_MEM_ARENA : ENABLE_CPU_MEM_ARENA, options, "CpuMemArena");
    if (threads > 0) {
        set_number(SET_INTRA_THREADS, options, threads, "SetIntraOpNumThreads");
        set_number(SET_INTER_THREADS, options, parallel ? threads : 1, "SetInterOpNumThreads");
    }
    if (runner_set("prepacking", "off")) config(options, "session.disable_prepacking", "1");
    if (runner_set("constant_folding", "off")) config(options, "optimization.disable_specified_optimizers", "ConstantFolding");
    if (runner_set("spinning", "off")) config(options, "session.intra_op.allow_spinning", "0");
    if (runner_set("arena_shrink", "on")) {
        check(((void *(*)(void **))api[CREATE_RUN_OPTIONS])(&run_options), "CreateRunOptions");
        check(((void *(*)(void *, const char *, const char *))api[ADD_RUN_CONFIG])(run_options, "memory.enable_memory_arena_shrinkage", "cpu:0"),
              "AddRunConfigEntry");
    }
    return options;
}

static char *name_of(enum ort_place place, size_t index, void *allocator) {
    char *name = NULL;
    check(((void *(*)(const void *, size_t, void *, char **))api[place])(session, index, allocator, &name), "SessionGetName");
    return name;
}

static void give_inputs(void) {
    size_t index, place;
    check(((void *(*)(int, int, void **))api[CREATE_CPU_MEMORY_INFO])(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &memory), "CreateCpuMemoryInfo");
    for (index = 0; index < input_count; ++index) {
        struct runner_shape shape;
        const void *tensor = NULL;
        void *about = NULL;
        size_t rank = 0;
        int type = 0;
        check(((void *(*)(const void *, size_t, void **))api[INPUT_TYPE_INFO])(session, index, &about), "SessionGetInputTypeInfo");
        check(((void *(*)(const void *, const void **))api[CAST_TO_TENSOR_INFO])(about, &tensor), "CastTypeInfoToTensorInfo");
        if (tensor == NULL) runner_fail("refused", "input '%s' is not a tensor, and no input can be made for it", input_names[index]);
        check(((void *(*)(const void *, int *))api[ELEMENT_TYPE])(tensor, &type), "GetTensorElementType");
        check(((void *(*)(const void *, size_t *))api[DIMENSIONS_COUNT])(tensor, &rank), "GetDimensionsCount");
        if (type < 0 || type >= (int)(sizeof TYPES / sizeof *TYPES) || TYPES[type].bytes == 0 || rank > RUNNER_RANK)
            runner_fail("refused", "input '%s' has a type or rank for which no input can be made here", input_names[index]);
        check(((void *(*)(const void *, int64_t *, size_t))api[DIMENSIONS])(tensor, shape.sizes, rank), "GetDimensions");
        shape.rank = (int)rank;
        runner_given_shape(input_names[index], &shape);
        for (place = 0; place < (size_t)shape.rank; ++place)
            if (shape.sizes[place] < 0) shape.sizes[place] = 1;
        arrays[index] = runner_input(input_names[index], (int)index, TYPES[type].kind, TYPES[type].bytes, &shape);
        check(((void *(*)(const void *, void *, size_t, const int64_t *, size_t, int, void **))api[CREATE_TENSOR_WITH_DATA])(
                  memory, arrays[index], (size_t)runner_elements(&shape) * TYPES[type].bytes, shape.sizes, (size_t)shape.rank, type, &inputs[index]),
              "CreateTensorWithDataAsOrtValue");
    }
}

int main(int argc, char **argv) {
    void *library = runner_open(argc, argv), *environment = NULL, *allocator = NULL;
    const struct ort_base *base = ((const struct ort_base *(*)(void))runner_function(library, "OrtGetApiBase"))();
    size_t index;
    api = base->get_api(ORT_VERSION);
    if (api == NULL) runner_fail("import", "onnxruntime %s does not offer version %d of its C interface", base->get_version(), ORT_VERSION);
    check(((void *(*)(int, const char *, void **))api[CREATE_ENV])(ORT_LOG_ERROR, "memprof", &environment), "CreateEnv");
    runner_note("onnxruntime's C interface does not let loading be separated: MODEL_LOAD includes PREPARE");
    runner_about(base->get_version());

    runner_begin("MODEL_LOAD");
    options = settings();
    check(((void *(*)(const void *, const char *, const void *, void **))api[CREATE_SESSION])(environment, runner_model(), options, &session), "CreateSession");
    runner_end();

    runner_begin("PREPARE");
    runner_end();

    runner_phase = runner_number("warmup", 0) ? "WARMUP" : "EXECUTE";
    check(((void *(*)(void **))api[DEFAULT_ALLOCATOR])(&allocator), "GetAllocatorWithDefaultOptions");
    check(((void *(*)(const void *, size_t *))api[INPUT_COUNT])(session, &input_count), "SessionGetInputCount");
    check(((void *(*)(const void *, size_t *))api[OUTPUT_COUNT])(session, &output_count), "SessionGetOutputCount");
    inputs = calloc(input_count + 1, sizeof *inputs);
    arrays = calloc(input_count + 1, sizeof *arrays);
    outputs = calloc(output_count + 1, sizeof *outputs);
    input_names = calloc(input_count + 1, sizeof *input_names);
    output_names = calloc(output_count + 1, sizeof *output_names);
    for (index = 0; index < input_count; ++index) input_names[index] = name_of(INPUT_NAME, index, allocator);
    for (index = 0; index < output_count; ++index) output_names[index] = name_of(OUTPUT_NAME, index, allocator);
    runner_check_names((char **)input_names, (int)input_count);
    give_inputs();
    runner_about_made(base->get_version());
    runner_iterate(execute);
    runner_release(release);
    runner_done();
    return 0;
}

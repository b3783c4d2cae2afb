/* The common part of memprof's native runners: their job, their inputs, and the lines they write besides the marks of memprof.h.
 *
 * The contract. `RUNNER LIBRARY MODEL [WORD=VALUE...]`, in any order:
 *
 *     warmup=N runs=N threads=N     0, 5 and the runtime's own if they are missing
 *     version=TEXT                  of the runtime, as its package says
 *     release=1                     end with a phase RELEASE
 *     until=PHASE                   the phase after which the job is done
 *     set.KNOB=VALUE                a knob that acts when the model is loaded
 *     shape.INPUT=1,3,224,224       an input's shape in place of the model's own (an empty value is a scalar)
 *     value.INPUT=TEXT              the value of each of its elements
 *     rows.INPUT=N                  how many rows the graph indexes by an input's values
 *     input.INPUT=PATH              an input's content, a .npy file; the others are made as runners/inputs.py makes them
 *
 * The runner opens LIBRARY, then loads, prepares, executes and releases MODEL with marks around each, as runners/__main__.py does in Python. Exit code 0
 * when the job is done, 1 when it failed, with the reason as an "error" line.
 */
#ifndef MEMPROF_RUNNER_H
#define MEMPROF_RUNNER_H

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>

#include "memprof.h"

#define RUNNER_RANK 16
#define RUNNER_NOTES 8
#define RUNNER_TEXT 600
#define RUNNER_PATH 4096
#define RUNNER_NUMBER 100
#define RUNNER_FOLDER "/proc/self/fd/100/"

static int runner_count;
static char **runner_words;
static const char *runner_phase = "STARTUP";
static char runner_notes[RUNNER_NOTES][RUNNER_TEXT];
static int runner_noted;
static char runner_folder[RUNNER_PATH]; /* of the model, as it was given, with its slash */

/* -- lines */

/* Text as the inside of a JSON string; a control character becomes a space. */
static void runner_quote(char *to, size_t size, const char *from) {
    size_t at = 0;
    for (; *from != 0 && at + 2 < size; ++from) {
        if (*from == '"' || *from == '\\') to[at++] = '\\';
        to[at++] = (unsigned char)*from < ' ' ? ' ' : *from;
    }
    to[at] = 0;
}

/* A text of the runtime, with the model's folder as it was given. */
static void runner_real(char *to, size_t size, const char *from) {
    size_t at = 0, length = strlen(RUNNER_FOLDER);
    while (*from != 0 && at + 1 < size) {
        if (strncmp(from, RUNNER_FOLDER, length) == 0) {
            at += (size_t)snprintf(to + at, size - at, "%s", runner_folder);
            if (at >= size) at = size - 1;
            from += length;
        } else {
            to[at++] = *from++;
        }
    }
    to[at] = 0;
}

static void runner_write(const char *line, int length) {
    if (memprof_enter()) {
        memprof_write(line, length);
        memprof_leave();
    }
}

/* Write why the job ends here, and end it. kind: import, refused or error. */
static void runner_fail(const char *kind, const char *format, ...) {
    char text[RUNNER_TEXT], message[RUNNER_TEXT], quoted[2 * RUNNER_TEXT], line[MEMPROF_LINE];
    va_list words;
    va_start(words, format);
    vsnprintf(text, sizeof text, format, words);
    va_end(words);
    runner_real(message, sizeof message, text);
    runner_quote(quoted, sizeof quoted, message);
    fprintf(stderr, "%s: %s\n", runner_phase, message);
    runner_write(line, snprintf(line, sizeof line, "{\"mark\":\"error\",\"pid\":%ld,\"phase\":\"%s\",\"kind\":\"%s\",\"message\":\"%s\"}\n",
                                (long)getpid(), runner_phase, kind, quoted));
    fflush(NULL);
    _exit(1);
}

/* A note for the reader of the figures; written with the next runner_about. */
static void runner_note(const char *format, ...) {
    va_list words;
    if (runner_noted == RUNNER_NOTES) return;
    va_start(words, format);
    vsnprintf(runner_notes[runner_noted++], RUNNER_TEXT, format, words);
    va_end(words);
}

static void runner_about(const char *version) {
    char line[MEMPROF_LINE], quoted[RUNNER_TEXT];
    int index, at;
    runner_quote(quoted, 200, version);
    at = snprintf(line, sizeof line, "{\"mark\":\"about\",\"pid\":%ld,\"runtime_version\":\"%s\",\"python_version\":\"\",\"notes\":[",
                  (long)getpid(), quoted);
    for (index = 0; index < runner_noted; ++index) {
        runner_quote(quoted, sizeof quoted, runner_notes[index]);
        if (at + strlen(quoted) + 8 > sizeof line) break;
        at += snprintf(line + at, sizeof line - (size_t)at, "%s\"%s\"", index ? "," : "", quoted);
    }
    at += snprintf(line + at, sizeof line - (size_t)at, "]}\n");
    runner_write(line, at);
}

/* End a complete job, without the runtime's teardown, which the job does not include: a crash there would spoil a complete result. */
static void runner_done(void) {
    char line[100];
    runner_write(line, snprintf(line, sizeof line, "{\"mark\":\"done\",\"pid\":%ld}\n", (long)getpid()));
    fflush(NULL);
    _exit(0);
}

/* -- the job */

/* The value of WORD, or of PREFIX and NAME together; NULL if it was not given. */
static const char *runner_word(const char *prefix, const char *name) {
    size_t first = strlen(prefix), second = strlen(name);
    int index;
    for (index = 3; index < runner_count; ++index) {
        const char *word = runner_words[index];
        if (strncmp(word, prefix, first) == 0 && strncmp(word + first, name, second) == 0 && word[first + second] == '=')
            return word + first + second + 1;
    }
    return NULL;
}

static int runner_number(const char *name, int otherwise) {
    const char *text = runner_word(name, "");
    return text != NULL ? atoi(text) : otherwise;
}

/* Whether a knob was set to this value. */
static int runner_set(const char *knob, const char *value) {
    const char *text = runner_word("set.", knob);
    return text != NULL && strcmp(text, value) == 0;
}

/* The model's path through its open folder, which is as long wherever the model lies, for the reason that constant_path.py gives; the path as it was given
 * where that does not lead to it. */
static const char *runner_model(void) {
    static char path[RUNNER_PATH];
    const char *given = runner_words[2], *slash = strrchr(given, '/');
    size_t length = slash != NULL ? (size_t)(slash - given) + 1 : 0;
    int opened;
    if (length >= sizeof runner_folder) return given;
    memcpy(runner_folder, given, length);
    opened = open(length ? runner_folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) return given;
    snprintf(path, sizeof path, RUNNER_FOLDER "%s", given + length);
    if (dup2(opened, RUNNER_NUMBER) != RUNNER_NUMBER || access(path, F_OK) != 0) return given;
    close(opened);
    return path;
}

static void *runner_open(int count, char **words) {
    void *library;
    if (count < 3) {
        fprintf(stderr, "usage: %s LIBRARY MODEL [WORD=VALUE...]\n", words[0]);
        exit(2);
    }
    runner_count = count;
    runner_words = words;
    library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) runner_fail("import", "%s", dlerror());
    return library;
}

static void *runner_function(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (function == NULL) runner_fail("import", "this library has no function %s: it is too old, or none of this runtime's", name);
    return function;
}

/* The knob ballast: so many bytes with every page touched, held until the job is done. */
static void runner_hold(void) {
    const char *text = runner_word("set.", "ballast");
    size_t size = text != NULL ? (size_t)strtoull(text, NULL, 10) : 0, at, page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory;
    if (size == 0) return;
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) runner_fail("error", "ballast: no memory of %lu bytes", (unsigned long)size);
    for (at = 0; at < size; at += page) memory[at] = 1;
}

static void runner_begin(const char *phase) {
    runner_phase = phase;
    memprof_begin(phase);
    if (strcmp(phase, "MODEL_LOAD") == 0) runner_hold();
}

static void runner_end(void) {
    const char *until;
#ifdef __GLIBC__
    if (runner_set("malloc_trim", "on") && (strcmp(runner_phase, "MODEL_LOAD") == 0 || strcmp(runner_phase, "PREPARE") == 0)) malloc_trim(0);
#endif
    memprof_end();
    until = runner_word("until", "");
    if (until != NULL && strcmp(until, runner_phase) == 0) runner_done();
}

/* WARMUP and EXECUTE: `execute` as often as the job says. */
static void runner_iterate(void (*execute)(void)) {
    static const char *const phases[] = {"WARMUP", "EXECUTE"};
    int counts[2], which, index;
    counts[0] = runner_number("warmup", 0);
    counts[1] = runner_number("runs", 5);
    for (which = 0; which < 2; ++which) {
        if (counts[which] == 0) continue;
        runner_begin(phases[which]);
        for (index = 0; index < counts[which]; ++index) {
            execute();
            memprof_iteration();
        }
        runner_end();
    }
}

/* RELEASE, if the job asks for it. `release` deletes the runtime's objects and the inputs, and nobody trims the heap. */
static void runner_release(void (*release)(void)) {
    if (runner_number("release", 0) == 0) return;
    runner_begin("RELEASE");
    release();
    runner_end();
}

/* -- inputs */

struct runner_shape {
    int rank;
    int64_t sizes[RUNNER_RANK]; /* -1 where unknown */
};

static int64_t runner_elements(const struct runner_shape *shape) {
    int64_t count = 1;
    int index;
    for (index = 0; index < shape->rank; ++index) count *= shape->sizes[index] < 0 ? 1 : shape->sizes[index];
    return count;
}

/* `1,3,224,224` as a shape. */
static void runner_parse_shape(const char *text, struct runner_shape *shape) {
    char *end;
    shape->rank = 0;
    while (*text != 0 && shape->rank < RUNNER_RANK) {
        shape->sizes[shape->rank++] = strtoll(text, &end, 10);
        if (end == text) runner_fail("refused", "%s is not a shape", text);
        text = *end == ',' ? end + 1 : end;
    }
}

/* Read the shape that was given for an input in place of the model's; true if there is any. */
static int runner_given_shape(const char *name, struct runner_shape *shape) {
    const char *text = runner_word("shape.", name);
    if (text != NULL) runner_parse_shape(text, shape);
    return text != NULL;
}

/* Names in shape.* and input.* must be inputs of the model. */
static void runner_check_names(char **names, int count) {
    char all[RUNNER_TEXT] = "none";
    int index, which, known, at = 0;
    for (which = 0; which < count; ++which)
        if (at < (int)sizeof all - 2) at += snprintf(all + at, sizeof all - (size_t)at, which ? ", %s" : "%s", names[which]);
    for (index = 3; index < runner_count; ++index) {
        const char *word = runner_words[index], *name = NULL, *end;
        if (strncmp(word, "shape.", 6) == 0 || strncmp(word, "input.", 6) == 0) name = word + 6;
        if (name == NULL) continue;
        known = 0;
        for (which = 0; which < count; ++which) {
            size_t length = strlen(names[which]);
            known |= strncmp(name, names[which], length) == 0 && name[length] == '=';
        }
        end = strchr(name, '=');
        if (!known) runner_fail("refused", "the model has no input '%.*s'; it has %s", (int)(end ? end - name : 0), name, all);
    }
}

static uint16_t runner_half(float value) {
    /* IEEE 754 binary16 of a number in [0, 1024), rounded to nearest, ties to even. */
    uint32_t bits, mantissa, shift, remainder, half;
    int exponent;
    memcpy(&bits, &value, sizeof bits);
    exponent = (int)(bits >> 23) - 127 + 15;
    mantissa = (bits & 0x7fffffu) | 0x800000u;
    shift = exponent <= 0 ? (uint32_t)(14 - exponent) : 13;
    if (bits == 0 || shift > 24) return 0;
    half = exponent <= 0 ? mantissa >> shift : ((uint32_t)exponent << 10) + ((mantissa >> 13) & 0x3ffu);
    remainder = mantissa & ((1u << shift) - 1u);
    if (remainder > (1u << (shift - 1)) || (remainder == (1u << (shift - 1)) && (half & 1u))) ++half;
    return (uint16_t)half;
}

/* A .npy file's elements (the format: numpy.lib.format): exactly `bytes` of them behind its header, in C order. */
static void runner_read_npy(const char *path, const char *name, void *data, size_t bytes, size_t element) {
    unsigned char head[12];
    char text[2000], *descr;
    size_t length, start;
    FILE *file = fopen(path, "rb");
    if (file == NULL) runner_fail("refused", "input '%s': %s: %s", name, path, strerror(errno));
    if (fread(head, 1, 12, file) != 12 || memcmp(head, "\x93NUMPY", 6) != 0) runner_fail("refused", "input '%s': %s is no .npy file", name, path);
    start = head[6] == 1 ? 10 : 12;
    length = head[6] == 1 ? head[8] | (size_t)head[9] << 8 : head[8] | (size_t)head[9] << 8 | (size_t)head[10] << 16 | (size_t)head[11] << 24;
    fseek(file, (long)start, SEEK_SET);
    if (length >= sizeof text || fread(text, 1, length, file) != length) runner_fail("refused", "input '%s': %s is damaged", name, path);
    text[length] = 0;
    if (strstr(text, "'fortran_order': True") != NULL) runner_fail("refused", "input '%s': its array is in Fortran order", name);
    descr = strstr(text, "'descr': '");
    if (descr == NULL || descr[10] == '>' || (size_t)atoi(descr + 12) != element)
        runner_fail("refused", "input '%s': its array has elements of another type than the model's", name);
    if (fread(data, 1, bytes, file) != bytes || fgetc(file) != EOF)
        runner_fail("refused", "input '%s': its array has another shape than the model's", name);
    fclose(file);
}

/* A number with commas between thousands. */
static void runner_grouped(char *to, size_t size, int64_t value) {
    if (value < 1000) {
        snprintf(to, size, "%lld", (long long)value);
    } else {
        runner_grouped(to, size, value / 1000);
        snprintf(to + strlen(to), size - strlen(to), ",%03lld", (long long)(value % 1000));
    }
}

/* How many of the rows that the graph indexes by an input its numbers can tell apart; 0 for none. */
static int64_t runner_rows(const char *name, char kind, size_t element) {
    const char *text = runner_word("rows.", name);
    int64_t rows = text != NULL ? strtoll(text, NULL, 10) : 0, most;
    int bits = kind == 'f' ? (element == 2 ? 10 : element == 4 ? 23 : 52) : (int)(8 * element) - (kind == 'i');
    if (kind == 'b' || rows <= 0) return 0;
    most = bits < 62 ? (int64_t)1 << bits : rows;
    return rows < most ? rows : most;
}

#define RUNNER_TOLD 6 /* inputs, in the note on what was made */
static char runner_made[RUNNER_TEXT];
static int runner_made_count;

/* Note what the whole numbers of a made input are, or the scalar that it is, as runners/inputs.py does. */
static void runner_note_made(const char *name, char kind, size_t element, int64_t rows, const struct runner_shape *shape, double first) {
    char last[40], all[40];
    size_t at = strlen(runner_made);
    const char *before = at ? "; " : "made inputs: ";
    if (rows == 0 && shape->rank > 0 && ((kind != 'i' && kind != 'u') || element < 4)) return;
    if (++runner_made_count > RUNNER_TOLD) return;
    if (rows > 0) {
        runner_grouped(last, sizeof last, rows - 1);
        runner_grouped(all, sizeof all, strtoll(runner_word("rows.", name), NULL, 10));
        snprintf(runner_made + at, sizeof runner_made - at, "%s%s is integers from 0 to %s, as the graph indexes %s rows by it", before, name, last, all);
    } else if (shape->rank == 0) {
        snprintf(runner_made + at, sizeof runner_made - at, "%s%s is %.3g, a scalar (--input %s=VALUE sets it)", before, name, first, name);
    } else {
        snprintf(runner_made + at, sizeof runner_made - at, "%s%s is all 0", before, name);
    }
}

/* Say what was made, once all inputs are there. */
static void runner_about_made(const char *version) {
    int more = runner_made_count - RUNNER_TOLD;
    if (more > 0)
        runner_note("%s; and %d more", runner_made, more);
    else if (runner_made_count > 0)
        runner_note("%s", runner_made);
    else
        return;
    runner_about(version);
}

static void runner_element(unsigned char *to, char kind, size_t element, double value, uint64_t row) {
    float single = (float)value;
    uint16_t half = kind == 'f' && element == 2 ? runner_half(single) : 0;
    if (kind != 'f')
        memcpy(to, &row, element); /* the lowest bytes first, on all machines that these runtimes have wheels for */
    else
        memcpy(to, element == 8 ? (void *)&value : element == 4 ? (void *)&single : (void *)&half, element);
}

/* Refuse a value that the input's type has not. */
static void runner_refuse_value(const char *name, char kind, size_t element, const char *text) {
    const char *type = kind == 'f' ? "float" : kind == 'b' ? "bool" : kind == 'u' ? "uint" : "int";
    char bits[8] = "";
    if (kind != 'b') snprintf(bits, sizeof bits, "%d", (int)(8 * element));
    runner_fail("refused", "--input %s=%s: %s has the type %s%s, which has no such value", name, text, name, type, bits);
}

/* Fill an input with the value that the user gave. */
static void runner_fill(unsigned char *data, int64_t count, const char *name, char kind, size_t element, const char *text) {
    long long most = kind == 'b' ? 2 : element < 8 ? 1LL << (8 * element - (kind == 'i')) : INT64_MAX, least = kind == 'i' ? -most : 0, whole = 0;
    double value = 0;
    char *end;
    int64_t index;
    errno = 0;
    if (kind == 'b' && (strcmp(text, "true") == 0 || strcmp(text, "on") == 0)) {
        whole = 1;
    } else if (kind == 'b' && (strcmp(text, "false") == 0 || strcmp(text, "off") == 0)) {
        whole = 0;
    } else if (kind == 'f') {
        value = strtod(text, &end);
        if (*text == 0 || *end != 0) runner_refuse_value(name, kind, element, text);
    } else {
        whole = strtoll(text, &end, 10);
        if (*text == 0 || *end != 0 || errno != 0 || whole < least || whole >= most) runner_refuse_value(name, kind, element, text);
    }
    for (index = 0; index < count; ++index) runner_element(data + (size_t)index * element, kind, element, value, (uint64_t)whole);
}

/* An input's content: from its file or its value, or as runners/inputs.py makes it. kind: 'f' for a float of `element` bytes, 'i' and 'u' for
 * integers, 'b' for a boolean. */
static void *runner_input(const char *name, int seed, char kind, size_t element, const struct runner_shape *shape) {
    int64_t count = runner_elements(shape), rows = runner_rows(name, kind, element), index;
    size_t bytes = (size_t)count * element;
    const char *path = runner_word("input.", name), *given = runner_word("value.", name);
    double first = 0;
    unsigned char *data = calloc(bytes ? bytes : 1, 1);
    if (data == NULL) runner_fail("error", "no memory for input '%s'", name);
    if (path != NULL) {
        runner_read_npy(path, name, data, bytes, element);
        return data;
    }
    if (given != NULL) {
        runner_fill(data, count, name, kind, element, given);
        return data;
    }
    if (kind == 'f' || rows > 0) {
        for (index = 0; index < count; ++index) {
            uint64_t step = (uint64_t)(index + 1) * 2654435769u + (uint64_t)seed * 97u;
            uint64_t row = (step & 0xffffffu) * (uint64_t)rows >> 24;
            double value = rows > 0 ? (double)row : (double)(step & 0xffffffu) / 16777216.0;
            if (index == 0) first = value;
            runner_element(data + (size_t)index * element, kind, element, value, row);
        }
    } else {
        memset(data, 0, bytes); /* touched, as numpy's zeros are by the copy that follows there */
    }
    runner_note_made(name, kind, element, rows, shape, first);
    return data;
}

#endif

/* An example of marks in a program: a model is "loaded", prepared and executed five times.
 *
 *     cc -I"$(memprof marks --include)" phases.c -o phases && memprof exec -- ./phases
 *
 * Loading holds 64 MiB for a moment beyond the 32 MiB that stay: the peak of MODEL_LOAD, which polling alone may miss.
 */
#include <stdlib.h>
#include <string.h>

#include "memprof.h"

#define MIB ((size_t)1 << 20)

static char *touched(size_t bytes) {
    char *memory = (char *)malloc(bytes);
    if (memory == NULL) exit(1);
    memset(memory, 1, bytes);
    return memory;
}

int main(void) {
    char *weights, *arena, *file;
    int run;

    memprof_begin("MODEL_LOAD");
    file = touched(64 * MIB);
    weights = touched(32 * MIB);
    memcpy(weights, file, 32 * MIB);
    free(file);
    memprof_end();

    memprof_begin("PREPARE");
    arena = touched(16 * MIB);
    memprof_end();
    memprof_value("arena_bytes", 16.0 * MIB);

    memprof_begin("EXECUTE");
    for (run = 0; run < 5; ++run) {
        memcpy(arena, weights + 16 * MIB, 16 * MIB);
        memprof_iteration();
    }
    memprof_end();
    free(arena);
    free(weights);
    return 0;
}

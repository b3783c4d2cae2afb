/* LD_PRELOADed: which sizes a program takes from malloc, in order, as one number. begin_sizes() begins again, sizes() tells it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static uint64_t seen;
static int follows;

static void take(uint64_t what, size_t size) {
    if (follows)
        seen = (seen ^ (what << 56) ^ size) * 1099511628211u; /* FNV-1a, over words */
}

void begin_sizes(void) {
    seen = 14695981039346656037u;
    follows = 1;
}

uint64_t sizes(void) {
    follows = 0;
    return seen;
}

void *malloc(size_t size) {
    static void *(*next)(size_t);
    if (!next)
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    take(1, size);
    return next(size);
}

void *realloc(void *old, size_t size) {
    static void *(*next)(void *, size_t);
    if (!next)
        next = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    take(2, size);
    return next(old, size);
}

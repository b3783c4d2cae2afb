/* Writes each aligned allocation of the process and its release into the file that MEMPROF_REQUESTS names. To be preloaded.
 *
 *     a NS ADDRESS BYTES SITE      NS is CLOCK_MONOTONIC, SITE where in its module the caller lies
 *     f NS ADDRESS
 *
 * ONNX Runtime allocates what belongs to its arena by operator new with an alignment, and nothing else does so. Without an arena these are the
 * requests that the arena would get, in their order. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("MEMPROF_REQUESTS");
    if (path != NULL) out = fopen(path, "ae");
    if (out != NULL) setvbuf(out, NULL, _IOLBF, BUFSIZ); /* the process may end without its buffers being written */
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static unsigned long site_of(const void *caller) {
    Dl_info module;
    return dladdr(caller, &module) ? (unsigned long)((const char *)caller - (const char *)module.dli_fbase) : 0;
}

/* operator new(size_t, std::align_val_t). It may not return NULL; memprof's caller sees a run that died. */
void *_ZnwmSt11align_val_t(size_t bytes, size_t alignment) {
    void *made = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (made == NULL) {
        fputs("out of memory while requests were recorded\n", stderr);
        _exit(1);
    }
    if (out != NULL) {
        pthread_mutex_lock(&lock);
        fprintf(out, "a %lld %p %zu %lx\n", now_ns(), made, bytes, site_of(__builtin_return_address(0)));
        pthread_mutex_unlock(&lock);
    }
    return made;
}

static void released(void *address) {
    if (address != NULL && out != NULL) {
        pthread_mutex_lock(&lock);
        fprintf(out, "f %lld %p\n", now_ns(), address);
        pthread_mutex_unlock(&lock);
    }
    free(address);
}

/* operator delete(void *, std::align_val_t), and the same with a size. */
void _ZdlPvSt11align_val_t(void *address, size_t alignment) {
    (void)alignment;
    released(address);
}

void _ZdlPvmSt11align_val_t(void *address, size_t bytes, size_t alignment) {
    (void)bytes;
    (void)alignment;
    released(address);
}

/* Brings the page cache of a model's files to one state before a measurement: see memprof/probe/pagecache.py. */
#include "probe.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BLOCK ((size_t)1 << 20)
#define PART ((size_t)64 << 20) /* of a file, mapped at a time: a board's address space may be small */

static int resident(int descriptor) {
    struct stat found;
    i64 at;
    if (fstat(descriptor, &found) < 0) return 0;
    for (at = 0; at < found.st_size; at += (i64)PART) {
        static unsigned char pages[PART / 4096];
        size_t size = found.st_size - at < (i64)PART ? (size_t)(found.st_size - at) : PART, index;
        void *address = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, (off_t)at);
        int all;
        if (address == MAP_FAILED) return 0;
        all = mincore(address, size, pages) == 0;
        for (index = 0; all && index < (size + (size_t)page - 1) / (size_t)page; ++index) all = pages[index] & 1;
        munmap(address, size);
        if (!all) return 0;
    }
    return 1;
}

/* Without read-ahead, so that each page is a folio of its own. */
static void read_through(int descriptor) {
    char *block = take_memory(BLOCK);
    off_t at = 0;
    ssize_t length;
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
    while ((length = pread(descriptor, block, BLOCK, at)) > 0) at += length;
    free(block); /* the child's first memory is a copy of this process's */
}

void pagecache_prepare(const struct json *paths, const char *state, int drop_first) {
    const struct json *path;
    if (strcmp(state, "asis") == 0) return;
    for (path = paths != NULL ? paths->first : NULL; path != NULL; path = path->next) {
        int descriptor = path->zero ? -1 : open(path->text, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) continue; /* left to the runtime to complain about */
        if ((strcmp(state, "cold") == 0 || drop_first) && fsync(descriptor) == 0) posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        if (strcmp(state, "warm") == 0 && !resident(descriptor)) read_through(descriptor);
        close(descriptor);
    }
}

#include "pagecache.h"
#include <sys/mman.h>
#include <sys/stat.h>

#define BLOCK ((size_t)1 << 20)
#define PART ((i64)64 << 20) /* of a file, mapped at a time: a board's address space may be small */
#define LEAST_PAGE 4096

static int is_resident(int descriptor) {
    static unsigned char pages[PART / LEAST_PAGE];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stat found;
    i64 at;
    if (fstat(descriptor, &found) < 0) return 0;
    for (at = 0; at < found.st_size; at += PART) {
        size_t size = (size_t)min64(found.st_size - at, PART), index;
        void *address = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, (off_t)at);
        int all;
        if (address == MAP_FAILED) return 0;
        all = mincore(address, size, pages) == 0;
        for (index = 0; all && index < (size + page - 1) / page; ++index) all = pages[index] & 1;
        munmap(address, size);
        if (!all) return 0;
    }
    return 1;
}

static void read_through(int descriptor) {
    char *block = take_memory(BLOCK);
    off_t at = 0;
    ssize_t length;
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM); /* of this descriptor, not of the program's */
    while ((length = pread(descriptor, block, BLOCK, at)) > 0) at += length;
    free(block); /* the child's first memory is a copy of the recorder's */
}

void pagecache_prepare(const struct words *paths, const char *state, int drop_first) {
    int warm = state != NULL && strcmp(state, "warm") == 0, cold = state != NULL && strcmp(state, "cold") == 0;
    size_t at;
    for (at = 0; (warm || cold) && at < paths->count; ++at) {
        int descriptor = open(paths->items[at], O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) continue; /* left to the program to complain about */
        /* Some network file systems can do neither: the state of their files stays. */
        if ((cold || drop_first) && fsync(descriptor) == 0) posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        if (warm && !is_resident(descriptor)) read_through(descriptor);
        close(descriptor);
    }
}

#include "probe.h"
#include <sys/mman.h>

void *take_memory(size_t size) {
    void *memory = malloc(size ? size : 1);
    if (memory == NULL) {
        static const char words[] = "no memory left for the probe\n";
        if (write(2, words, sizeof words - 1) < 0) { /* nobody listens */ }
        _exit(2);
    }
    return memory;
}

/* Room for one more of `count` items. */
void *grown(void *items, size_t count, size_t *room, size_t size) {
    void *larger;
    if (count < *room) return items;
    *room = *room ? *room * 2 : 8;
    larger = take_memory(*room * size);
    if (count) memcpy(larger, items, count * size);
    free(items);
    return larger;
}

char *copy_text(const char *text, size_t length) {
    char *copy = take_memory(length + 1);
    memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

void *zeros(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return memset(take_memory(size), 0, size);
    return memory;
}

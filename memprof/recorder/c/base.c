#include "base.h"
#include <time.h>

static i64 clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (i64)now.tv_sec * 1000000000 + now.tv_nsec;
}

i64 now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
i64 cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

int budget_is_left(struct budget *budget, i64 now) {
    if (!budget->begin_ns) budget->begin_ns = now;
    return (double)budget->spent_ns <= (double)(now - budget->begin_ns) * budget->share + (double)budget->allowance_ns;
}

void budget_spend(struct budget *budget, i64 since_ns) { budget->spent_ns += cpu_ns() - since_ns; }

void *take_memory(size_t size) {
    static const char reason[] = "no memory left for the recorder\n";
    void *memory = malloc(size ? size : 1);
    if (memory != NULL) return memory;
    if (write(2, reason, sizeof reason - 1) < 0) { /* nobody listens */ }
    _exit(2);
}

void *grown(void *items, size_t count, size_t *room, size_t size) {
    void *larger;
    if (count < *room) return items;
    *room = *room ? *room * 2 : 8;
    larger = take_memory(*room * size);
    if (count) memcpy(larger, items, count * size);
    free(items);
    return larger;
}

int pids_have(const struct pids *pids, int pid) {
    size_t at;
    for (at = 0; at < pids->count; ++at)
        if (pids->items[at] == pid) return 1;
    return 0;
}

i64 read_int(const char *text, const char **rest) {
    char *end;
    i64 number = strtoll(text, &end, 10);
    if (rest != NULL) *rest = end;
    return number;
}

uint64_t hashed(uint64_t hash, const void *bytes, size_t length) {
    size_t at;
    for (at = 0; at < length; ++at) hash = (hash ^ ((const unsigned char *)bytes)[at]) * 1099511628211u;
    return hash;
}

char *add_text(char *at, const char *text) {
    size_t length = strlen(text);
    memcpy(at, text, length + 1);
    return at + length;
}

char *add_int(char *at, i64 number) {
    char digits[24] = "", *begin = digits + sizeof digits - 1;
    uint64_t size = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do *--begin = (char)('0' + size % 10);
    while (size /= 10);
    if (number < 0) *--begin = '-';
    return add_text(at, begin);
}

int begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

size_t read_whole(int descriptor, char *text, size_t size) {
    size_t filled = 0;
    ssize_t count = descriptor >= 0;
    while (count > 0 && filled < size - 1) {
        count = read(descriptor, text + filled, size - 1 - filled);
        filled += (size_t)max64(count, 0);
    }
    if (descriptor >= 0) close(descriptor);
    text[filled] = 0;
    return filled;
}

void each_line(int descriptor, void (*take)(char *line, void *to), void *to) {
    static char text[65536]; /* a name has 4,096 bytes, some of them four letters here */
    size_t filled = 0;
    ssize_t length;
    while (descriptor >= 0 && (length = read(descriptor, text + filled, sizeof text - filled)) > 0) {
        char *begin = text, *end;
        for (filled += (size_t)length; (end = memchr(begin, '\n', filled - (size_t)(begin - text))) != NULL; begin = end + 1) {
            *end = 0;
            take(begin, to);
        }
        filled -= (size_t)(begin - text);
        memmove(text, begin, filled);
    }
    if (descriptor >= 0) close(descriptor);
}

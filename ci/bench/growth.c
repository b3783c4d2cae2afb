/* A program whose growth is known: growth KIND UNITS SEED. Each kind is a case of ci/bench/growth.py. */
#include "memprof.h"
#include <sys/mman.h>

enum { ENTRIES = 3000, RING = 16384 }; /* of a cache that drops some at once, and room for one that is bounded by bytes */

static unsigned long long state;
static char *held[RING];

static unsigned drawn(unsigned below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)((state >> 33) % below);
}

static char *touched(size_t bytes) { return memset(malloc(bytes), 1, bytes); }

int main(int count, char **words) {
    const char *kind = words[1];
    int units = atoi(words[2]), unit, pool_used = 0, pool_room = 1, pieces = 0;
    unsigned limit, period, size;
    char *cache[512] = {0}, *pool = NULL, *garbage[512];
    char shape[16];
    int file = -1, first = 0, entries = 0, bound, drop;
    size_t sizes[RING], total = 0, most;
    (void)count;
    state = strtoull(words[3], NULL, 10) * 2654435761ULL + (unsigned)getpid();
    drawn(1);
    limit = 1 + drawn(500);
    period = 5 + drawn(200);
    size = 2000 + drawn(60000);
    bound = strncmp(kind, "bounded-", 8) == 0 ? atoi(kind + 8) : 0;
    most = (size_t)(16 + atoi(words[3]) % 64) << 20; /* the same for all processes of a case, as is what bursts drop */
    drop = 250 + atoi(words[3]) * 97 % 2500;
    if (strcmp(kind, "file") == 0) {
        char path[] = "/tmp/memprof-growth-XXXXXX";
        file = mkstemp(path);
        unlink(path);
        if (ftruncate(file, (off_t)units * 4096) != 0) return 1;
        pool = (char *)mmap(NULL, (size_t)units * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    memprof_begin("EXECUTE");
    for (unit = 0; unit < units; ++unit) {
        int tokens = 1 + (int)drawn(100), requests = drawn(3) == 0, key;
        snprintf(shape, sizeof shape, "%u", drawn(10) == 0 ? 100 + (unsigned)unit : drawn(4));
        if (strcmp(kind, "steady") == 0) free(touched(size));
        if (strcmp(kind, "warm-up") == 0 && (unsigned)unit < limit) touched(size);
        if (strcmp(kind, "cache") == 0 && cache[key = (int)drawn(16 + limit / 6)] == NULL) cache[key] = touched(size);
        if (strcmp(kind, "saw-tooth") == 0) {
            garbage[pieces++] = touched(size % 8000 + 200);
            if ((unsigned)pieces == period)
                while (pieces) free(garbage[--pieces]);
        }
        if (strcmp(kind, "fragments") == 0) { /* blocks of odd sizes that live for a while: the heap has holes, and stops growing */
            key = (int)drawn(256);
            free(cache[key]);
            cache[key] = touched(100 + drawn(size));
        }
        if (unit < bound) touched(4096);
        if (strcmp(kind, "bounded-bytes") == 0) { /* the oldest entries go first */
            size_t bytes = 1000 + drawn(60000);
            held[(first + entries) % RING] = touched(bytes);
            sizes[(first + entries++) % RING] = bytes;
            for (total += bytes; total > most; --entries) {
                total -= sizes[first];
                free(held[first]);
                first = (first + 1) % RING;
            }
        }
        if (strcmp(kind, "bursts") == 0) {
            held[entries++] = touched(4096);
            if (entries == ENTRIES)
                while (entries > ENTRIES - drop) free(held[--entries]);
        }
        if (strncmp(kind, "leak-", 5) == 0) touched((size_t)atoi(kind + 5));
        if (strcmp(kind, "each-100th") == 0 && unit % 100 == 99) touched(409600);
        if (strcmp(kind, "token") == 0) touched((size_t)tokens * 80);
        if (strcmp(kind, "request") == 0 && requests) touched(12288);
        if (strcmp(kind, "shape") == 0 && atoi(shape) >= 100) touched(40960);
        if (strcmp(kind, "file") == 0) pool[(size_t)unit * 4096] = 1;
        if (strcmp(kind, "pool") == 0 && (pool_used += 4096) > pool_room) {
            char *larger = touched((size_t)(pool_room = pool_used * 2));
            free(pool);
            pool = larger;
        }
        memprof_work("request", requests);
        memprof_iteration_of(tokens, shape);
    }
    memprof_end();
    return 0;
}

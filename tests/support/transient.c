/* A program of known cost: one transient of exactly BYTES in one phase, held by all of its threads at the same moment, told with marks.
 *
 *     transient PHASE BYTES THREADS HOLD_US SETTLE_US
 *
 * Its phases are MODEL_LOAD, PREPARE and EXECUTE; the truth is the resident set where PHASE begins and BYTES on top. So that nothing else moves
 * meanwhile, all threads start before the first phase and have done once by then what a transient does.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memprof.h"

#define MOST 64

static size_t bytes;
static int threads;
static unsigned hold_us, settle_us;
static pthread_barrier_t go, touched, over;

static void transient(int alone) {
    char *memory = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(1);
    memset(memory, 1, bytes);
    if (!alone) pthread_barrier_wait(&touched); /* from here until the first of them goes on, every byte is resident */
    if (hold_us) usleep(hold_us);
    munmap(memory, bytes);
}

static void *helper(void *nothing) {
    for (;;) {
        pthread_barrier_wait(&go);
        transient(0);
        pthread_barrier_wait(&over);
    }
    return nothing;
}

static void together(void) {
    pthread_barrier_wait(&go);
    pthread_barrier_wait(&over);
}

static void phase(const char *name, const char *wanted, size_t whole) {
    memprof_begin(name);
    usleep(settle_us);
    if (strcmp(name, wanted) == 0) {
        bytes = threads > 1 ? whole / (size_t)threads : whole;
        if (threads > 1) together();
        else transient(1);
    }
    usleep(settle_us);
    memprof_end();
}

int main(int count, char **words) {
    pthread_t thread;
    int at;
    if (count != 6) return 2;
    threads = atoi(words[3]);
    if (threads < 1 || threads > MOST) return 2;
    settle_us = 1;
    bytes = 4096;
    if (threads > 1) {
        pthread_barrier_init(&go, NULL, (unsigned)threads + 1);
        pthread_barrier_init(&touched, NULL, (unsigned)threads);
        pthread_barrier_init(&over, NULL, (unsigned)threads + 1);
        for (at = 0; at < threads; ++at)
            if (pthread_create(&thread, NULL, helper, NULL) != 0) return 1;
        for (at = 0; at < 3; ++at) together();
    } else
        transient(1);
    phase("WARMUP", "", 0);
    hold_us = (unsigned)atoi(words[4]);
    settle_us = (unsigned)atoi(words[5]);
    phase("MODEL_LOAD", words[1], strtoul(words[2], NULL, 10));
    phase("PREPARE", words[1], strtoul(words[2], NULL, 10));
    phase("EXECUTE", words[1], strtoul(words[2], NULL, 10));
    return 0;
}

/* Trees of processes whose memory together is known: `trees CASE [TIMES]`. Each ends by itself within two seconds, or TIMES as many. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define MIB ((size_t)1 << 20)

static char *hold(size_t bytes) {
    char *memory = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, bytes);
    return memory;
}

static void touch(volatile char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) (void)memory[at];
}

static void wait_for_all(void) {
    while (wait(NULL) > 0) {}
}

static int times = 1;

static void ms(int count) { usleep((useconds_t)(count * times) * 1000); }

/* 100 MiB that six children have too. */
static void forks(int for_ms) {
    hold(100 * MIB);
    for (int i = 0; i < 6; ++i)
        if (fork() == 0) { ms(for_ms); _exit(0); }
    wait_for_all();
}

/* The same, and the children are killed one after another while others still have it. */
static void killed(void) {
    pid_t children[6];
    hold(100 * MIB);
    for (int i = 0; i < 6; ++i)
        if ((children[i] = fork()) == 0) { pause(); _exit(0); }
    for (int i = 0; i < 6; ++i) { ms(17 + 11 * i); kill(children[i], SIGKILL); }
    wait_for_all();
    ms(50);
}

/* Sharers come and go without end. */
static void storm(void) {
    hold(100 * MIB);
    for (int i = 0; i < 60; ++i) {
        if (fork() == 0) { ms(30 + i % 7 * 9); _exit(0); }
        ms(8);
    }
    wait_for_all();
}

/* 24 MiB in each of four. */
static void own(void) {
    for (int i = 0; i < 4; ++i)
        if (fork() == 0) { hold(24 * MIB); ms(500); _exit(0); }
    wait_for_all();
}

/* A child writes to all of its parent's memory and lives on for so long. */
static void copies(size_t bytes, int for_ms) {
    char *memory = hold(bytes);
    if (fork() == 0) { memset(memory, 2, bytes); ms(for_ms); _exit(0); }
    wait_for_all();
}

/* Three children map one file of 200 MiB. */
static void file(void) {
    char name[] = "/var/tmp/memprof-trees-XXXXXX";
    int descriptor = mkstemp(name);
    static char block[1 << 20];
    unlink(name);
    for (int i = 0; i < 200; ++i)
        if (write(descriptor, block, sizeof block) != (ssize_t)sizeof block) _exit(9);
    for (int i = 0; i < 3; ++i)
        if (fork() == 0) {
            touch((char *)mmap(NULL, 200 * MIB, PROT_READ, MAP_SHARED, descriptor, 0), 200 * MIB);
            ms(500);
            _exit(0);
        }
    wait_for_all();
}

/* Four children touch 200 MiB of shared anonymous memory. */
static void shmem(void) {
    char *memory = (char *)mmap(NULL, 200 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4; ++i)
        if (fork() == 0) { memset(memory, i, 200 * MIB); ms(400); _exit(0); }
    wait_for_all();
}

/* A child of vfork stays for a while in its parent's 300 MiB, and so does the program that it then is, in its own. */
static void vforks(int for_ms) {
    hold(300 * MIB);
    for (int i = 0; i < 3; ++i)
        if (vfork() == 0) {
            ms(for_ms);
            execlp("sleep", "sleep", "0.1", (char *)NULL);
            _exit(9);
        }
    wait_for_all();
}

static void *worker(void *memory) {
    hold(16 * MIB);
    if (fork() == 0) { touch((char *)memory, 64 * MIB); ms(400); _exit(0); }
    ms(400);
    return NULL;
}

/* Four threads with 16 MiB each fork a child each, which shares them and the 64 MiB of the process. */
static void threads(void) {
    pthread_t all[4];
    char *memory = hold(64 * MIB);
    for (int i = 0; i < 4; ++i) pthread_create(&all[i], NULL, worker, memory);
    for (int i = 0; i < 4; ++i) pthread_join(all[i], NULL);
    wait_for_all();
}

/* A daemon, by two forks, of a process with 100 MiB. */
static void daemon_of(void) {
    hold(100 * MIB);
    if (fork() == 0) {
        setsid();
        if (fork() == 0) { ms(500); _exit(0); }
        _exit(0);
    }
    wait_for_all();
    ms(600);
}

static void *survivor(void *unused) {
    char *more;
    ms(300); /* until the first thread has gone */
    more = hold(60 * MIB);
    if (fork() == 0) { memset(more, 2, 4 * MIB); ms(400); _exit(0); }
    wait_for_all();
    _exit(0);
    return unused;
}

/* The first thread ends. Another has its 100 MiB then, takes 60 more, and forks a child, which copies 4 of them. */
static void leader(void) {
    pthread_t other;
    hold(100 * MIB);
    pthread_create(&other, NULL, survivor, NULL);
    pthread_exit(NULL);
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    if (count > 2) times = atoi(words[2]);
    if (!strcmp(name, "fork")) forks(600);
    else if (!strcmp(name, "fork-short")) forks(15);
    else if (!strcmp(name, "killed")) killed();
    else if (!strcmp(name, "storm")) storm();
    else if (!strcmp(name, "own")) own();
    else if (!strcmp(name, "copy")) copies(100 * MIB, 100);
    else if (!strcmp(name, "copy-100ms")) copies(500 * MIB, 100);
    else if (!strcmp(name, "copy-300ms")) copies(500 * MIB, 300);
    else if (!strcmp(name, "file")) file();
    else if (!strcmp(name, "shmem")) shmem();
    else if (!strcmp(name, "vfork")) vforks(60);
    else if (!strcmp(name, "vfork-short")) vforks(0);
    else if (!strcmp(name, "threads")) threads();
    else if (!strcmp(name, "daemon")) daemon_of();
    else if (!strcmp(name, "leader")) leader();
    else return 2;
    return 0;
}

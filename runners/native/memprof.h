/* Marks for memprof: where a phase of this program begins and ends, in C99 and C++11, in one header, with no dependency but the C library.
 *
 *     #include "memprof.h"
 *
 *     memprof_begin("MODEL_LOAD");  model = load(path);        memprof_end();
 *     memprof_begin("PREPARE");     prepare(model);            memprof_end();
 *     memprof_value("arena_bytes", arena_size(model));
 *     memprof_begin("EXECUTE");
 *     for (i = 0; i < runs; ++i) { run(model); memprof_iteration(); }
 *     memprof_end();
 *
 *     cc -I"$(memprof marks --include)" app.c -o app  &&  memprof exec -- ./app
 *
 * Without memprof around it, each call is a test of one variable. Under memprof a begin resets the high-water mark of the resident set and an
 * end reads it, so that a peak is exact however short it was. Everything costly is done outside the timed part; nothing is allocated.
 *
 * memprof_begin(phase)         a phase begins. One at a time, for the whole process: a phase that is open ends where the next begins. The
 *                              first call also ends STARTUP, whose memory is the baseline. memprof's own tables know MODEL_LOAD, PREPARE,
 *                              WARMUP, EXECUTE and RELEASE by these names; any other name is as good. Repeats of a name become one phase
 *                              with the durations of all.
 * memprof_iteration()          an iteration of the open phase has ended; the next one begins here
 * memprof_iteration_of(tokens, shape)   the same, and how many tokens it did, -1 if it has none; and what tells its inputs' shape from others,
 *                              such as "1x3x224x224", NULL if that is always the same
 * memprof_work(unit, count)    the iteration that runs does so much of another unit: memprof_work("request", 1)
 * memprof_value(name, number)  a figure of the program; the name says what it is: arena_bytes, wait_ns, loss
 * memprof_end()                the open phase ends
 *
 * `memprof grow` reads memory after each iteration and says whether it rises with iterations, with tokens or with each new shape.
 *
 * They may be called from any thread, but not from a signal's handler. Files of one program that include this header share one state, across
 * shared libraries too if the linker exports it (-rdynamic). MEMPROF_MARKS=FD:DEV:INO in the environment names memprof's pipe.
 * Each line has the writer's pid and at most PIPE_BUF bytes, and is written only where fstat agrees that FD is still that pipe.
 * memprof_marks.py describes the lines; `memprof marks --python` prints its path.
 */
#ifndef MEMPROF_H
#define MEMPROF_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
#include <malloc.h>
#define MEMPROF_HAS_MALLINFO2 1
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MEMPROF_NAME 100  /* most bytes of a name */
#define MEMPROF_LINE 3072 /* most bytes of a line; PIPE_BUF is 4096 on Linux, and a line is written whole */
#define MEMPROF_TIMES 128 /* iterations a line: each takes at most 21 bytes */
#define MEMPROF_UNITS 8   /* units of work, iteration and shape among them */
#define MEMPROF_UNIT 30   /* most bytes of a unit's name */
#define MEMPROF_SHAPES 4096 /* places for distinct shapes: more of them are not told from those before */
#define MEMPROF_ROWS 2300 /* bytes of rows a line */
#define MEMPROF_ROW 260   /* most bytes of a row */
#define MEMPROF_ROWS_A_RATE 4096 /* rows until each second one is left out */
#define MEMPROF_WEAK __attribute__((weak, visibility("default")))
#define MEMPROF_USED __attribute__((unused))

/* By the name of the C library's own function: under -std=c99 <time.h> hides clock_gettime and its type. */
struct memprof_time {
#if defined(__x86_64__) && defined(__ILP32__)
    long long seconds, nanoseconds;
#else
    long seconds, nanoseconds;
#endif
};
extern int memprof_clock(int clock, struct memprof_time *now) __asm__("clock_gettime");

/* Memory is in bytes, -1 if the kernel does not say it; times are CLOCK_MONOTONIC in nanoseconds. */
struct memprof_status {
    long long rss, anon, file, shmem, swap, vms, hwm, vms_peak;
};

struct memprof_state {
    int looked;           /* the environment was read */
    int lock;             /* the process whose thread speaks just now, 0 for none */
    int open;             /* a phase is open */
    int reset;            /* the high-water mark was reset where it began */
    int descriptor;       /* -1 if nobody listens */
    unsigned long long device, inode;
    int started;          /* STARTUP has been told */
    int times;            /* iterations not yet written */
    long long begin_ns, last_ns;
    long long highest;    /* of all high-water marks read, as a tool that never resets it would report */
    long long hwm_begin, rss_begin, read_begin, cpu_begin;
    long minor_begin, major_begin;
    char phase[MEMPROF_NAME + 1];
    long long times_ns[MEMPROF_TIMES];
    int follows;          /* memory after each iteration is wanted; what follows is touched before the first */
    int shaped;           /* places of shapes are taken */
    int units;            /* how many have a name */
    int filled, rows, first; /* bytes of rows not yet written, rows at this rate, bytes of the look from before the first iteration */
    char unit[MEMPROF_UNITS][MEMPROF_UNIT + 1];
    long long done[MEMPROF_UNITS], every, flushed_ns, look_at, look_ns, look_last, swap, swap_ns, seen, told;
    unsigned long long shapes[MEMPROF_SHAPES];
    char row_text[MEMPROF_ROWS], first_look[MEMPROF_NAME + 400];
};

/* Weak, so that all files of a program that include this header share it, C and C++ alike. */
extern MEMPROF_WEAK struct memprof_state memprof_state_;
#ifdef __cplusplus
MEMPROF_WEAK struct memprof_state memprof_state_ = {};
#else
MEMPROF_WEAK struct memprof_state memprof_state_ = {0};
#endif

static MEMPROF_USED long long memprof_now_ns(void) {
    struct memprof_time now = {0, 0};
    memprof_clock(1 /* CLOCK_MONOTONIC */, &now);
    return (long long)now.seconds * 1000000000LL + (long long)now.nanoseconds;
}

/* A file of /proc as a string, as far as it fits; its length, 0 if it cannot be read. */
static MEMPROF_USED int memprof_read(const char *path, char *text, int size) {
    int filled = 0, descriptor = open(path, O_RDONLY
#ifdef O_CLOEXEC
        | O_CLOEXEC
#endif
    );
    if (descriptor < 0) { text[0] = 0; return 0; }
    while (filled < size - 1) {
        long count = (long)read(descriptor, text + filled, (size_t)(size - 1 - filled));
        if (count <= 0) break;
        filled += (int)count;
    }
    close(descriptor);
    text[filled] = 0;
    return filled;
}

/* The number after "\nNAME:" times `unit`, or -1. */
static MEMPROF_USED long long memprof_field(const char *text, const char *name, long long unit) {
    const char *row = text;
    size_t length = strlen(name);
    while ((row = strstr(row, name)) != NULL) {
        if ((row == text || row[-1] == '\n') && row[length] == ':') return atoll(row + length + 1) * unit;
        row += length;
    }
    return -1;
}

/* /proc/self/status, in kB (proc_pid_status(5)). */
static MEMPROF_USED struct memprof_status memprof_look(void) {
    struct memprof_status status;
    char text[4096];
    memprof_read("/proc/self/status", text, (int)sizeof text);
    status.rss = memprof_field(text, "VmRSS", 1024);
    status.anon = memprof_field(text, "RssAnon", 1024);
    status.file = memprof_field(text, "RssFile", 1024);
    status.shmem = memprof_field(text, "RssShmem", 1024);
    status.swap = memprof_field(text, "VmSwap", 1024);
    status.vms = memprof_field(text, "VmSize", 1024);
    status.hwm = memprof_field(text, "VmHWM", 1024);
    status.vms_peak = memprof_field(text, "VmPeak", 1024);
    return status;
}

static MEMPROF_USED int memprof_reset_high_water(void) {
    int descriptor = open("/proc/self/clear_refs", O_WRONLY), done;
    if (descriptor < 0) return 0; /* a process that has changed its user may not */
    done = write(descriptor, "5", 1) == 1;
    close(descriptor);
    return done;
}

static MEMPROF_USED void memprof_count(long *minor, long *major, long long *read_bytes, long long *cpu_ns) {
    struct rusage used;
    char text[1024];
    memset(&used, 0, sizeof used);
    getrusage(RUSAGE_SELF, &used);
    *minor = used.ru_minflt;
    *major = used.ru_majflt;
    *cpu_ns = ((long long)used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000LL
            + ((long long)used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000LL;
    *read_bytes = memprof_read("/proc/self/io", text, (int)sizeof text) ? memprof_field(text, "read_bytes", 1) : -1;
}

/* Write a line if memprof listens; errno stays what it was. */
static MEMPROF_USED void memprof_write(const char *line, int length) {
    struct stat target;
    int before = errno;
    if (length > 0 && length < MEMPROF_LINE && fstat(memprof_state_.descriptor, &target) == 0
        && (unsigned long long)target.st_dev == memprof_state_.device && (unsigned long long)target.st_ino == memprof_state_.inode) {
        if (write(memprof_state_.descriptor, line, (size_t)length) != length) { /* nobody listens any more */ }
    }
    errno = before;
}

static MEMPROF_USED int memprof_put(char *line, int at, const char *name, long long value) {
    if (value < 0) return at; /* could not be had: left out */
    return at + snprintf(line + at, (size_t)(MEMPROF_LINE - at), ",\"%s\":%lld", name, value);
}

/* A name without characters that JSON would have to escape. */
static MEMPROF_USED void memprof_name(char *to, const char *from) {
    int at = 0;
    for (; from != NULL && from[at] != 0 && at < MEMPROF_NAME; ++at)
        to[at] = from[at] == '"' || from[at] == '\\' || (unsigned char)from[at] < ' ' ? '_' : from[at];
    to[at] = 0;
    if (at == 0) { to[0] = '_'; to[1] = 0; }
}

static MEMPROF_USED void memprof_write_times(void) {
    char line[MEMPROF_LINE];
    int index, at;
    if (memprof_state_.times == 0) return;
    at = snprintf(line, sizeof line, "{\"mark\":\"times\",\"pid\":%ld,\"phase\":\"%s\",\"times_ns\":[", (long)getpid(), memprof_state_.phase);
    for (index = 0; index < memprof_state_.times; ++index)
        at += snprintf(line + at, sizeof line - (size_t)at, index ? ",%lld" : "%lld", memprof_state_.times_ns[index]);
    at += snprintf(line + at, sizeof line - (size_t)at, "]}\n");
    memprof_write(line, at);
    memprof_state_.times = 0;
}

static MEMPROF_USED void memprof_write_begin(void) {
    char line[MEMPROF_LINE];
    memprof_write(line, snprintf(line, sizeof line, "{\"mark\":\"begin\",\"pid\":%ld,\"phase\":\"%s\",\"t_ns\":%lld}\n", (long)getpid(),
                                 memprof_state_.phase, memprof_state_.begin_ns));
}

/* The resident set by smaps_rollup, which is exact on every kernel, if status differs by more than a page: before Linux 6.17 it lags. */
static MEMPROF_USED void memprof_exact_end(struct memprof_status *status, const char *rollup) {
    long long rss = memprof_field(rollup, "Rss", 1024), anon = memprof_field(rollup, "Anonymous", 1024);
    long long difference = rss - status->rss, page = sysconf(_SC_PAGESIZE);
    if (rss < 0 || anon < 0 || status->rss < 0 || (difference <= page && -difference <= page)) return;
    status->rss = rss;
    status->anon = anon;
    status->file = rss - anon - (status->shmem > 0 ? status->shmem : 0);
    if (status->file < 0) status->file = 0;
}

/* -- memory after each iteration, for `memprof grow`: lines "work" and "anchor", as memprof_marks.py writes them */

static MEMPROF_USED void memprof_flush(void) {
    char line[MEMPROF_LINE];
    int at, index;
    if (memprof_state_.filled == 0 || memprof_state_.done[0] == 0) return;
    at = snprintf(line, sizeof line, "{\"mark\":\"work\",\"pid\":%ld,\"phase\":\"%s\",\"units\":[", (long)getpid(), memprof_state_.phase);
    for (index = 0; index < memprof_state_.units; ++index)
        at += snprintf(line + at, sizeof line - (size_t)at, index ? ",\"%s\"" : "\"%s\"", memprof_state_.unit[index]);
    at += snprintf(line + at, sizeof line - (size_t)at, "],\"rows\":[%.*s]}\n", memprof_state_.filled, memprof_state_.row_text);
    memprof_write(line, at);
    memprof_state_.filled = 0;
}

static MEMPROF_USED void memprof_row(long long now_ns) {
    char text[256], *shared = NULL;
    char *row;
    long long page = sysconf(_SC_PAGESIZE);
    int index, at = memprof_state_.filled;
    if (now_ns - memprof_state_.swap_ns > 10000000) {
        char status[4096];
        memprof_read("/proc/self/status", status, (int)sizeof status);
        memprof_state_.swap = memprof_field(status, "VmSwap", 1024);
        if (memprof_state_.swap < 0) memprof_state_.swap = 0;
        memprof_state_.swap_ns = now_ns;
    }
    /* /proc/self/statm, in pages: size, resident, shared (proc_pid_statm(5)) */
    if (!memprof_read("/proc/self/statm", text, (int)sizeof text) || (row = strchr(text, ' ')) == NULL) return;
    memprof_state_.seen = strtoll(row, &shared, 10) * page;
    row = memprof_state_.row_text;
    at += snprintf(row + at, MEMPROF_ROWS - (size_t)at, at ? ",%lld,%lld,%lld,%lld" : "%lld,%lld,%lld,%lld", now_ns, memprof_state_.seen,
                   strtoll(shared, NULL, 10) * page, memprof_state_.swap);
    for (index = 0; index < memprof_state_.units; ++index)
        at += snprintf(row + at, MEMPROF_ROWS - (size_t)at, ",%lld", memprof_state_.done[index]);
    memprof_state_.filled = at;
    ++memprof_state_.rows;
    if (at > MEMPROF_ROWS - MEMPROF_ROW) memprof_flush();
}

/* An exact look, as a line: its length. */
static MEMPROF_USED int memprof_exact_look(char *line, int size) {
    char text[2048];
    long long rss, swap;
    int at;
    memprof_read("/proc/self/smaps_rollup", text, (int)sizeof text);
    rss = memprof_field(text, "Rss", 1024);
    swap = memprof_field(text, "Swap", 1024);
    at = snprintf(line, (size_t)size, "{\"mark\":\"anchor\",\"pid\":%ld,\"phase\":\"%s\",\"iteration\":%lld,\"seen\":%lld,\"rss\":%lld,\"swap\":%lld",
                  (long)getpid(), memprof_state_.phase, memprof_state_.done[0], memprof_state_.seen, rss < 0 ? memprof_state_.seen : rss,
                  swap < 0 ? memprof_state_.swap : swap);
#ifdef MEMPROF_HAS_MALLINFO2
    {
        struct mallinfo2 heap = mallinfo2();
        at += snprintf(line + at, (size_t)(size - at), ",\"heap_used\":%lld,\"heap_free\":%lld", (long long)(heap.uordblks + heap.hblkhd),
                       (long long)heap.fordblks);
    }
#endif
    at += snprintf(line + at, (size_t)(size - at), "}\n");
    return at;
}

static MEMPROF_USED void memprof_begin_units(void) {
    int turn;
    strcpy(memprof_state_.unit[0], "iteration");
    memprof_state_.units = 1;
    memset(memprof_state_.done, 0, sizeof memprof_state_.done);
    if (memprof_state_.follows || memprof_state_.shaped) memset(memprof_state_.shapes, 0, sizeof memprof_state_.shapes);
    memprof_state_.shaped = 0;
    if (!memprof_state_.follows) return;
    memset(memprof_state_.row_text, ' ', sizeof memprof_state_.row_text);
    memprof_state_.every = 1;
    memprof_state_.look_at = memprof_state_.look_ns = memprof_state_.look_last = 0;
    memprof_state_.flushed_ns = memprof_state_.swap_ns = memprof_state_.told = 0;
    for (turn = 0; turn < 4; ++turn) { /* what this needs for the first time is taken now, not in the first iteration */
        memprof_state_.filled = memprof_state_.rows = 0;
        memprof_row(memprof_now_ns());
        memprof_state_.first = memprof_exact_look(memprof_state_.first_look, (int)sizeof memprof_state_.first_look);
    }
}

static MEMPROF_USED void memprof_take(long long now_ns, int last) {
    char line[MEMPROF_NAME + 400];
    if (memprof_state_.first) memprof_write(memprof_state_.first_look, memprof_state_.first);
    memprof_state_.first = 0;
    if (memprof_state_.told != memprof_state_.done[0]) memprof_row(now_ns);
    memprof_state_.told = memprof_state_.done[0];
    if (last || memprof_state_.done[0] >= memprof_state_.look_last ||
        (memprof_state_.done[0] >= memprof_state_.look_at && now_ns >= memprof_state_.look_ns)) {
        long long after_ns;
        memprof_write(line, memprof_exact_look(line, (int)sizeof line));
        after_ns = memprof_now_ns();
        memprof_state_.look_last = memprof_state_.done[0] + memprof_state_.done[0] / 8 + 1;
        memprof_state_.look_at = memprof_state_.done[0] + (memprof_state_.done[0] < 32 ? 1 : memprof_state_.done[0] / 32);
        memprof_state_.look_ns = after_ns + 100 * (after_ns - now_ns); /* it takes milliseconds in a large process: 1% of the time, and after each eighth more */
    }
    if (last || now_ns - memprof_state_.flushed_ns > 100000000) {
        memprof_flush();
        memprof_state_.flushed_ns = now_ns;
    }
    if (memprof_state_.rows >= MEMPROF_ROWS_A_RATE) {
        memprof_state_.rows = 0;
        memprof_state_.every *= 2;
    }
}

static MEMPROF_USED void memprof_count_unit(const char *name, long long count) {
    char clean[MEMPROF_NAME + 1];
    int index;
    memprof_name(clean, name);
    clean[MEMPROF_UNIT] = 0;
    for (index = 0; index < memprof_state_.units && strcmp(memprof_state_.unit[index], clean) != 0; ++index) {}
    if (index == MEMPROF_UNITS || count < 0) return;
    if (index == memprof_state_.units) {
        memprof_flush(); /* the rows before it lack it */
        strcpy(memprof_state_.unit[index], clean);
        ++memprof_state_.units;
    }
    memprof_state_.done[index] += count;
}

/* 1 for a shape that is seen for the first time (FNV-1a of its text). */
static MEMPROF_USED int memprof_is_new(const char *shape) {
    unsigned long long hash = 14695981039346656037ULL;
    int place, tried;
    for (; *shape; ++shape) hash = (hash ^ (unsigned char)*shape) * 1099511628211ULL;
    if (hash == 0) hash = 1;
    place = (int)(hash % MEMPROF_SHAPES);
    for (tried = 0; tried < MEMPROF_SHAPES; ++tried) {
        if (memprof_state_.shapes[place] == hash) return 0;
        if (memprof_state_.shapes[place] == 0) {
            memprof_state_.shapes[place] = hash;
            memprof_state_.shaped = 1;
            return 1;
        }
        place = (place + 1) % MEMPROF_SHAPES;
    }
    return 0;
}

static MEMPROF_USED void memprof_write_end(long long end_ns) {
    struct memprof_status after;
    char line[MEMPROF_LINE], text[2048];
    long minor, major;
    long long read_bytes, cpu_ns, private_clean;
    int at, index;
    if (memprof_state_.follows && memprof_state_.units && memprof_state_.done[0]) memprof_take(memprof_now_ns(), 1);
    after = memprof_look();
    memprof_count(&minor, &major, &read_bytes, &cpu_ns);
    memprof_read("/proc/self/smaps_rollup", text, (int)sizeof text); /* takes milliseconds in a large process; empty where there is none */
    memprof_exact_end(&after, text);
    if (after.hwm > memprof_state_.highest) memprof_state_.highest = after.hwm;
    memprof_write_times();
    at = snprintf(line, sizeof line, "{\"mark\":\"end\",\"pid\":%ld,\"phase\":\"%s\",\"hwm_reset\":%s", (long)getpid(), memprof_state_.phase,
                  memprof_state_.reset ? "true" : "false");
    at = memprof_put(line, at, "begin_ns", memprof_state_.begin_ns);
    at = memprof_put(line, at, "end_ns", end_ns);
    at = memprof_put(line, at, "hwm_begin_bytes", memprof_state_.hwm_begin);
    at = memprof_put(line, at, "hwm_phase_bytes", after.hwm);
    at = memprof_put(line, at, "hwm_bytes", memprof_state_.highest > 0 ? memprof_state_.highest : -1);
    at = memprof_put(line, at, "rss_begin_bytes", memprof_state_.rss_begin);
    at = memprof_put(line, at, "rss_end_bytes", after.rss);
    at = memprof_put(line, at, "anon_end_bytes", after.anon);
    at = memprof_put(line, at, "file_end_bytes", after.file);
    at = memprof_put(line, at, "shmem_end_bytes", after.shmem);
    at = memprof_put(line, at, "swap_end_bytes", after.swap);
    at = memprof_put(line, at, "vms_end_bytes", after.vms);
    at = memprof_put(line, at, "vms_peak_bytes", after.vms_peak);
    at = memprof_put(line, at, "minor_faults", minor - memprof_state_.minor_begin);
    at = memprof_put(line, at, "major_faults", major - memprof_state_.major_begin);
    at = memprof_put(line, at, "cpu_ns", cpu_ns - memprof_state_.cpu_begin);
    if (read_bytes >= 0 && memprof_state_.read_begin >= 0)
        at = memprof_put(line, at, "read_bytes", read_bytes - memprof_state_.read_begin);
    at = memprof_put(line, at, "pss_end_bytes", memprof_field(text, "Pss", 1024));
    private_clean = memprof_field(text, "Private_Clean", 1024);
    if (private_clean >= 0) at = memprof_put(line, at, "uss_end_bytes", private_clean + memprof_field(text, "Private_Dirty", 1024));
#ifdef MEMPROF_HAS_MALLINFO2
    {
        struct mallinfo2 heap = mallinfo2();
        at = memprof_put(line, at, "heap_used_end_bytes", (long long)(heap.uordblks + heap.hblkhd));
        at = memprof_put(line, at, "heap_free_end_bytes", (long long)heap.fordblks);
    }
#endif
    for (index = 1; index < memprof_state_.units; ++index)
        at += snprintf(line + at, sizeof line - (size_t)at, index == 1 ? ",\"units\":{\"%s\":%lld" : ",\"%s\":%lld", memprof_state_.unit[index],
                       memprof_state_.done[index]);
    at += snprintf(line + at, sizeof line - (size_t)at, memprof_state_.units > 1 ? "}}\n" : "}\n");
    memprof_write(line, at);
    memprof_state_.units = 0;
    memprof_state_.open = 0;
    if (getenv("MEMPROF_HOLD") != NULL) raise(SIGSTOP); /* memprof looks at the process as it is now, and lets it go */
}

/* Tell memprof of a call in the wrong order. */
static MEMPROF_USED void memprof_write_stray(const char *what, const char *phase) {
    char line[MEMPROF_LINE];
    memprof_write(line, snprintf(line, sizeof line, "{\"mark\":\"stray\",\"pid\":%ld,\"what\":\"%s\",\"phase\":\"%s\"}\n", (long)getpid(), what,
                                 phase));
}

/* STARTUP began with the process, before anything could be read or reset; its high-water mark is the process's own. */
static MEMPROF_USED void memprof_write_startup(long long end_ns) {
    const char *started = getenv("MEMPROF_STARTED_NS");
    memprof_name(memprof_state_.phase, "STARTUP");
    memprof_state_.reset = 1;
    memprof_state_.begin_ns = started != NULL ? atoll(started) : end_ns;
    memprof_state_.hwm_begin = memprof_state_.rss_begin = memprof_state_.read_begin = memprof_state_.cpu_begin = 0;
    memprof_state_.minor_begin = memprof_state_.major_begin = 0;
    memprof_write_begin();
    memprof_write_end(end_ns);
}

/* Read the environment once. True if somebody listens; this thread then holds the lock. */
static MEMPROF_USED int memprof_enter(void) {
    int mine = (int)getpid(), held = 0;
    if (memprof_state_.looked && memprof_state_.descriptor < 0) return 0;
    while (!__atomic_compare_exchange_n(&memprof_state_.lock, &held, mine, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        if (held == mine) { /* by another thread */
            sched_yield();
            held = 0;
        } /* else by a thread of the process that this process was forked from, which is not here to let it go: taken at the next turn */
    }
    if (!memprof_state_.looked) {
        const char *text = getenv("MEMPROF_MARKS");
        memprof_state_.descriptor = -1;
        if (text == NULL || sscanf(text, "%d:%llu:%llu", &memprof_state_.descriptor, &memprof_state_.device, &memprof_state_.inode) != 3)
            memprof_state_.descriptor = -1;
        memprof_state_.looked = 1;
        text = getenv("MEMPROF_WORK");
        memprof_state_.follows = text != NULL && strcmp(text, "1") == 0;
    }
    if (memprof_state_.descriptor >= 0) return 1;
    __atomic_store_n(&memprof_state_.lock, 0, __ATOMIC_RELEASE);
    return 0;
}

static MEMPROF_USED void memprof_leave(void) { __atomic_store_n(&memprof_state_.lock, 0, __ATOMIC_RELEASE); }

static MEMPROF_USED void memprof_begin(const char *phase) {
    struct memprof_status before;
    long long now_ns;
    if (!memprof_enter()) return;
    now_ns = memprof_now_ns();
    if (memprof_state_.open) {
        memprof_write_stray("begin", memprof_state_.phase);
        memprof_write_end(now_ns);
    }
    if (!memprof_state_.started) memprof_write_startup(now_ns);
    memprof_state_.started = 1;
    memprof_name(memprof_state_.phase, phase);
    memprof_begin_units();
    before = memprof_look();
    if (before.hwm > memprof_state_.highest) memprof_state_.highest = before.hwm;
    memprof_state_.hwm_begin = before.hwm;
    memprof_state_.rss_begin = before.rss;
    memprof_state_.times = 0;
    memprof_state_.begin_ns = memprof_now_ns();
    memprof_write_begin();
    memprof_count(&memprof_state_.minor_begin, &memprof_state_.major_begin, &memprof_state_.read_begin, &memprof_state_.cpu_begin);
    memprof_state_.reset = memprof_reset_high_water();
    memprof_state_.open = 1;
    memprof_state_.begin_ns = memprof_state_.last_ns = memprof_now_ns();
    memprof_leave();
}

static MEMPROF_USED void memprof_end(void) {
    long long end_ns;
    if (!memprof_enter()) return;
    end_ns = memprof_now_ns();
    if (memprof_state_.open)
        memprof_write_end(end_ns);
    else
        memprof_write_stray("end", memprof_state_.phase);
    memprof_leave();
}

static MEMPROF_USED void memprof_work(const char *unit, long long count) {
    if (!memprof_enter()) return;
    if (memprof_state_.open) memprof_count_unit(unit, count);
    memprof_leave();
}

static MEMPROF_USED void memprof_iteration_of(long long tokens, const char *shape) {
    if (!memprof_enter()) return;
    if (memprof_state_.open) {
        int before = errno;
        long long now_ns = memprof_now_ns();
        ++memprof_state_.done[0];
        if (tokens >= 0) memprof_count_unit("token", tokens);
        if (shape != NULL) memprof_count_unit("shape", memprof_is_new(shape));
        if (!memprof_state_.follows || memprof_state_.every == 1) { /* of a run of hours the first times are kept */
            memprof_state_.times_ns[memprof_state_.times++] = now_ns - memprof_state_.last_ns;
            if (memprof_state_.times == MEMPROF_TIMES) memprof_write_times();
        }
        if (memprof_state_.follows && memprof_state_.done[0] % memprof_state_.every == 0) memprof_take(now_ns, 0);
        memprof_state_.last_ns = memprof_now_ns();
        errno = before;
    }
    memprof_leave();
}

static MEMPROF_USED void memprof_iteration(void) { memprof_iteration_of(-1, NULL); }

static MEMPROF_USED void memprof_value(const char *name, double number) {
    char line[MEMPROF_LINE], clean[MEMPROF_NAME + 1], text[40], *comma;
    if (!memprof_enter()) return;
    memprof_name(clean, name);
    if (number != number) strcpy(text, "NaN");
    else if (number - number != 0) strcpy(text, number > 0 ? "Infinity" : "-Infinity");
    else snprintf(text, sizeof text, "%.17g", number);
    comma = strchr(text, ','); /* the point of the program's locale */
    if (comma != NULL) *comma = '.';
    memprof_write(line, snprintf(line, sizeof line, "{\"mark\":\"value\",\"pid\":%ld,\"name\":\"%s\",\"value\":%s,\"t_ns\":%lld}\n",
                                 (long)getpid(), clean, text, memprof_now_ns()));
    memprof_leave();
}

#ifdef __cplusplus
}
#endif
#endif

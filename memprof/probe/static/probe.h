/* The probe without Python: what its files share. Its contract, lines in and lines out, is that of memprof/probe/__main__.py, and each
 * file does what the Python module of that name does, where the reasons stand too; tests hold one to the other.
 *
 * C99, POSIX and Linux; no library but the C library's. Sizes are bytes and times are CLOCK_MONOTONIC in nanoseconds unless a name says
 * otherwise; -1 is what is not known.
 *
 * Phases in lines of output are searched for by patterns in a part of Python's syntax: see pattern.c.
 */
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

typedef int64_t i64;

#define NEVER ((i64)1 << 62)
#define KIB 1024
#define LENGTH(array) (sizeof(array) / sizeof *(array))

static inline i64 max64(i64 left, i64 right) { return left > right ? left : right; }
static inline i64 min64(i64 left, i64 right) { return left < right ? left : right; }

/* -- memory.c: lists that grow, and the end where there is no memory left */

void *grown(void *items, size_t count, size_t *room, size_t size);
void *take_memory(size_t size);
char *copy_text(const char *text, size_t length);
void *zeros(size_t size); /* resident only as far as it is written to */

/* -- text.c */

struct decimal { uint64_t digits; int exponent, negative; }; /* digits times ten to the exponent */

size_t vput(char *to, size_t size, const char *format, va_list words);
size_t put(char *to, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *fixed(char text[32], i64 value, i64 unit, int places);
i64 read_int(const char *text, const char **rest);
struct decimal decimal_of(const char *text);
double decimal_double(struct decimal number);

/* -- pattern.c */

struct pattern_code *pattern_read(const char *text, size_t length, const char **reason); /* NULL, and why */
int pattern_found(struct pattern_code *pattern, const char *line, size_t length);

/* -- json.c */

enum kind { J_NULL, J_FALSE, J_TRUE, J_NUMBER, J_STRING, J_LIST, J_MAP };

/* text: of a string decoded, of all else as it came, ended by 0. zero: a string holds a 0 itself. name: its key in a
 * map. from, to: where it stood in what was read. */
struct json {
    enum kind kind;
    int zero;
    const char *name, *text;
    size_t length, from, to;
    struct json *first, *next;
};

struct json *json_read(char *text, size_t length); /* NULL for no JSON; text is written over; all of it is freed with json_free */
void json_free(struct json *value);
struct json *json_get(const struct json *map, const char *name); /* NULL where it is missing or null */
int json_true(const struct json *value);
int json_count(const struct json *value, i64 *count); /* 0 for what is no time and no size */
i64 json_int(const struct json *map, const char *name, i64 other);
const char *json_text(const struct json *map, const char *name); /* NULL where it is no text */
int utf8_next(const unsigned char *text, size_t length, size_t *used); /* the code point, or -1 and the bytes to replace */
int utf8_valid(const char *text, size_t length);

void out_raw(const char *text, size_t length);
void out(const char *format, ...) __attribute__((format(printf, 1, 2)));
void out_string(const char *text, size_t length);
void out_text(const char *text); /* a string, or null for NULL */
void out_flush(void);
void say(const char *line); /* without waiting; a reader that is busy misses it */

/* -- procfs.c */

extern i64 page;

/* task: the id by which /proc tells of the process's memory, its own until its first thread has ended while others live. */
struct statm { int pid, task, first, descriptor, length; i64 rss, file, vms; char text[128]; };
struct memory { i64 rss, anon, file, shmem, swap, vms, hwm, vms_peak; };
struct stat_of { i64 faults, child_faults, stack; int threads, ended; char name[64]; };
struct shares { i64 rss, anon, pss, file_overlap, private_, shared_anon; };
struct counters { i64 minor, major, cpu_ns; };
struct pids { int *items; size_t count, room; };

i64 now_ns(void);
i64 cpu_ns(void); /* of this thread */
void pause_ns(i64 ns);
int read_file(const char *path, char *text, int size); /* its length, 0 where it cannot be read */
int statm_open(struct statm *statm, int pid);
int statm_read(struct statm *statm); /* 0 once the process is gone: a zombie's are all zeros */
void statm_close(struct statm *statm);
void pids_add(struct pids *pids, int pid);
void pids_parse(struct pids *pids, const char *text, size_t length);
int children_of(struct pids *pids, int pid); /* 0 where they cannot be listed */
int parent_of(int pid);                      /* 0 where there is no such process any more */
void name_of(int pid, char name[64]);
int is_stopped(int pid);
int stat_of(int pid, struct stat_of *found);
i64 started_of(int pid); /* in clock ticks since the machine started; 0 if it has ended */
int counters_of(int pid, struct counters *found);
struct memory memory_of(int pid);
struct memory memory_and_threads(int pid, int *threads);
struct memory exact_memory_of(int pid); /* by smaps_rollup where status lags */
int shares_of(int pid, struct shares *found);
int reset_high_water(int pid);
void command_of(int pid, char command[], int size);
int same_memory(int pid, int other);
i64 field(const char *text, const char *name); /* of status or meminfo, in bytes */

/* -- machine.c */

i64 oom_kills(void);
i64 oom_kills_inside(void); /* those in this container; -1 outside of one */
i64 huge_faults(void);
i64 peak_bound(void);
int late_by_thread(void);
int has_swap(void);
void out_machine(void);

/* -- timeline.c */

/* t in ns, rss and file in KiB, vms in bytes; file and vms are NULL where only rss is kept. */
struct timeline {
    i64 *t, *vms;
    uint32_t *rss, *file;
    int rows, any, seen; /* seen: the newest sample repeats the last row */
    i64 seen_ns, count, first_ns, last_ns, last_rss, last_file, last_vms, rss_min, rss_max;
    double area; /* KiB x ns */
};

void timeline_add(struct timeline *timeline, i64 t_ns, i64 rss, i64 file, i64 vms);
void timeline_narrow(struct timeline *narrow, const struct timeline *from); /* a copy of its times and rss */
void timeline_free(struct timeline *timeline);
i64 timeline_mean(const struct timeline *timeline);
i64 timeline_highest(const struct timeline *timeline, i64 begin_ns, i64 end_ns);
i64 timeline_highest_file(const struct timeline *timeline, i64 begin_ns, i64 end_ns);
void out_swap(struct timeline *timeline);
void out_timeline(struct timeline *timeline, i64 rss_max_high);
void out_numbers(const i64 *numbers, i64 rows); /* packed as the columns of a timeline */

/* -- sums.c */

struct row {
    i64 t_ns, total, most, files, most_file, vms, low, anon, file, gained, lost, copied, known, missed;
    int told;
};

struct sum {
    struct timeline timeline, possible; /* what is certain of it over time, and what is possible, once that is anything else */
    i64 settled_ns, most;
    i64 low, anon, file, gained, lost, copied, missed;
    struct row *pending;
    size_t waiting, room;
    int repeated, several, sampled;
    i64 last_rss, last_file, last_vms; /* of the last sample, from what was known then */
};

struct node {
    int pid, parent, samples, gone, inside, rose, references, shares_known, mapped; /* mapped: its maps could be read */
    int descriptor; /* of its list of children, -1 for none */
    struct statm statm;
    struct node *above;
    int twin; /* the process in whose memory it runs until it execs, 0 for none */
    char *children;
    size_t children_length;
    struct pids kids;
    char name[64], command[204];
    i64 begin_ns, end_ns, rss, file, vms, rss_peak, hwm, shared, own, grown, faults, waited, stack, pss_peak, child_faults, swap, stack_seen;
};

struct nodes { struct node **items; size_t count, room; };

struct sum *sum_new(void);
void sum_gain(struct sum *sum, i64 certain, i64 anon, i64 file);
void sum_lose(struct sum *sum, i64 size, i64 known);
void sum_copy(struct sum *sum, i64 size);
void sum_sample(struct sum *sum, i64 now, const struct nodes *members);
void sum_again(struct sum *sum, i64 now);
void sum_confirm(struct sum *sum, i64 low, i64 anon, i64 file);
void sum_at_least(struct sum *sum, i64 low);
void sum_flush(struct sum *sum);
i64 sum_width(const struct sum *sum);
i64 sum_moved(const struct sum *sum);
void sum_highest(const struct sum *sum, i64 begin_ns, i64 end_ns, i64 *low, i64 *high);

/* -- rounds.c */

struct reading { struct node *node; int known; struct shares shares; };

struct rounds {
    i64 count, refused, begin_ns, last_ns, spent_ns, moved, moved_seen, limit, others, moved_ns, wanted_ns, pause_until_ns, pause_ns;
    int running;
    struct nodes waiting;
    struct reading *readings;
    size_t read, room;
    struct pids leaving;
};

void rounds_begin(struct rounds *rounds, i64 now);
void rounds_left(struct rounds *rounds, int pid, i64 now);
void rounds_changed(struct rounds *rounds, i64 now);
int rounds_step(struct rounds *rounds, i64 now, const struct nodes *members, struct sum *whole); /* 1 where a round is complete */
i64 rounds_spread(const struct rounds *rounds, const struct sum *whole);

/* -- mappings.c */

void mappings_begin(i64 now);
void mappings_drop(void); /* a process has come or gone: the reading is of other processes */
int mappings_step(i64 now, const struct nodes *members, const struct sum *whole); /* 1 where the reading is complete */
void mappings_confirm(struct sum *whole, struct sum *own);

/* -- tree.c */

extern struct tree {
    int root, centre, adopted;
    struct nodes nodes, ended, members;
    int members_known, changed;
    unsigned char *seen; /* a bit a process id */
    i64 begin_ns, look_ns, faults_ns, huge_faults;
    unsigned turn, faults_turn;
    struct { int pid; i64 faults; } reaped[512];
    unsigned reaped_count;
    struct sum *whole, *own;
    struct rounds rounds;
    i64 unseen, most, unfollowed;
    struct { i64 begin_ns, end_ns; } stretches[100];
    size_t stretch_count;
} tree;

void tree_begin(int root, i64 now, int reaper);
void tree_measure(int pid, int alone);
int tree_had_others(i64 begin_ns, i64 end_ns);
void tree_add(int pid, i64 now);
int tree_poll(i64 now, i64 *rss, i64 *file, i64 *vms); /* 0 where none is left */
void tree_settle(void);
void tree_reaped(int pid, i64 faults);
i64 tree_high_water(int pid);
const char *tree_called(int pid);
void tree_tell_faults(struct node *node);
void out_processes(void);

/* -- marks.c: the records of phases, and the lines that make them */

enum figure {
    HWM, RSS_BEGIN, RSS_END, ANON_END, FILE_END, SHMEM_END, SWAP_END, VMS_END, VMS_PEAK, PSS_END, USS_END, HEAP_USED_END, HEAP_FREE_END,
    MINOR_FAULTS, MAJOR_FAULTS, READ_BYTES, CPU, FIGURES
};

#define UNITS 8

struct times { i64 *items; size_t count, room; };

/* phase and all other names are interned: the same name is the same pointer. */
struct mark {
    const char *phase;
    i64 begin_ns, end_ns, peak, high, samples, interval_ns, swap_peak, both_peak, refaults, figures[FIGURES]; /* swap_peak: 0 for nothing */
    int exact;
    struct times times;
    struct { const char *name; i64 count; } units[UNITS]; /* name: NULL for none */
};

struct value { const char *name, *phase, *note; i64 t_ns; struct decimal number; };
struct marks { struct mark *items; size_t count, room; };
struct names { const char **items; size_t count, room; };

const char *interned(const char *text);
const char *word_of(const struct json *map, const char *name); /* NULL where it is no text or empty */
const char *word_in(const struct json *text);
void names_add(struct names *names, const char *name);
void names_remove(struct names *names, const char *name);
struct mark mark_seen(const char *phase, i64 begin_ns, i64 end_ns, i64 peak);
void mark_memory_end(struct mark *mark, const struct memory *memory);
struct mark *mark_of(const char *phase);
void marks_read(void);
void marks_insert(size_t place, struct mark mark);
void keep(struct mark record);
int begin_phase(const char *phase);
void out_marks(void);

/* -- work.c: memory after units of a phase's work; whether a line was understood */

int take_work(const struct json *mark);
int take_anchor(const struct json *mark);
void work_again(const char *phase);
void work_line(const char *unit); /* one more of a unit that ends with a line */
void work_lines(i64 t_ns, i64 rss, i64 file, i64 swap); /* memory after the lines that came together */
void out_work(void);

/* -- swapping.c */

extern int swapped_threads; /* the most that a process was seen with */

void swapped_look(int pid, i64 now);
void swapped_take(i64 now, i64 rss, i64 swap, int threads);
void swapped_forget(void);
i64 swapped_newest(void); /* what was swapped out when it was last read */
void swapped_tell(struct mark *mark);
void swapped_merge(struct mark *record, const struct mark *before);
void out_swapped(void);

/* -- child.c: one measurement. What a phase is, is left to marks.c and, for a program of its own, to command.c */

enum task { OWN_SIDE, COMMAND, ATTACH }; /* memprof's own side says when it is done; a command owes memprof nothing */

extern struct measurement {
    enum task task;
    const struct json *start, *hold, *intervals;
    char *early; /* what came on standard input with the first line */
    i64 timeout_ns, silence_ns, heard_ns, report_ns; /* report_ns: how often to tell how far it has come, 0 for never */
    int pid, measured; /* what was started, and who speaks */
    int usable;        /* on how many CPUs it may run */
    int grouped;       /* whether it is in a control group that was made for it */
    i64 begin_ns, polls, polls_begin, refaults_begin, rss;
    int marks, output, input; /* descriptors, -1 once they have ended */
    int ended, status;
    int follows; /* memory after each unit of work is wanted */
    struct statm statm;
    struct timeline timeline;
    struct marks records;
    struct names open, warnings;
    struct times times;
    const char *phase; /* the innermost that is open, empty where none is */
    struct value *values;
    size_t value_count, value_room;
    struct json *about;
    char *about_text;
    const char *error, *error_phase, *error_message;
    int done;
    i64 foreign;
    const char *held; /* what it is, or is about to be, held at; NULL for nothing */
    i64 held_ns, held_seen_ns;
    int held_said;
    const char *outcome, *outcome_phase, *outcome_message;
    int exit_code, signal;                /* -1 and 0 where there is none */
    int out_of_memory;                    /* -1: perhaps */
    i64 rss_last, rss_max_high;
    char tail[4096];
    size_t tail_length;
    i64 output_bytes, period_count, last_poll_ns, last_interval_ns, periods[4096];
    int charged;
    i64 charged_peak, charged_kills;
} m;

void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *formatted(const char *format, ...) __attribute__((format(printf, 1, 2)));
int is_late(i64 now);
void report(void); /* tell how far it has come */
int loop(void); /* until the child has ended; 0 where whoever asked for this is gone, or wants no more of it */
int follow(void); /* 0 where it was told to stop */
i64 interval_of(const char *phase);
void start_fails(const char *phase, const char *message);

/* -- launching.c */

int launch(void); /* 0 where it cannot be started, which is the outcome */
void send_input(void);
int usable_cpus(int pid);

/* -- kills.c */

void kills_begin(void);
int kills_ended(void); /* 1 if the kernel has killed the child for want of memory since then, 0 if not, -1 if it may have */

/* -- attach.c */

int attach(void); /* 0 where it was told to stop */

/* -- command.c */

int command_begins(void); /* 0 where a pattern cannot be read, which is the outcome */
int command_terminal(void); /* whether what it prints must come through a terminal */
void command_launched(void);
void command_settle(void);
void command_settle_all(void);
i64 command_highest(i64 begin_ns, i64 end_ns);
void command_ends(int pid); /* and is not waited for yet */
void command_reaped(int pid, const struct rusage *used);
int command_heeds(const char *kind, int pid, int *understood); /* whether a line of another process counts */
int command_opens(const struct json *mark, int pid, int *understood); /* whether a phase begins there */
int command_reserved(const char *phase, int pid, i64 begin_ns);
int command_reserved_name(const char *phase);
void command_phase_ended(const char *phase, int pid, const struct json *mark);
int command_mark(const char *kind, const struct json *mark); /* -1 for a kind that there is not, 0 for what is not understood */
void command_marks_closed(void);
void command_heard(const char *data, size_t length);
void command_judge_begins(void);
void command_judged(void);
void command_words(void);
int command_keeps(struct mark *record);
void command_kept(const char *phase, i64 begin_ns, i64 end_ns);
const char *command_why_not(const char *message);

/* -- values.c */

int take_value(const struct json *mark); /* whether it was understood */
void out_values(void);

/* -- group.c, pagecache.c */

int group_make(const struct json *group); /* 0, or an errno */
int group_join(void);
void group_figures(i64 *peak, i64 *kills);
i64 group_refaults(void);
void group_remove(void);
void pagecache_prepare(const struct json *paths, const char *state, int drop_first);

#endif

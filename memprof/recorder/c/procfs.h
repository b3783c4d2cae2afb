/* One reading of a process, or of the machine, from /proc. Readings are kept as the fields that a recording has of them. */
#pragma once

#include "base.h"

#define NAME_ROOM 64
#define FIELDS_ROOM 200
#define COMMAND_ROOM 201
#define NOTHING "-" /* in place of the fields of what could not be read */

/* /proc/PID/statm (proc_pid_statm(5)) on an open descriptor. fields: SIZE, RESIDENT and SHARED, in pages. task: the id by which /proc
 * tells of the process's memory, its own until its first thread has ended while others live. */
struct statm { int pid, task, first, descriptor; i64 resident, shared; char fields[FIELDS_ROOM]; };

/* /proc/PID/stat (proc_pid_stat(5)); that of a zombie still has its faults. fields: 3, 10, 11, 12, 14 + 15, 20 and 28. stack: where its
 * stack begins, which stays after a fork and changes at an exec. */
struct stat_reading { char state, fields[FIELDS_ROOM], name[NAME_ROOM]; int parent; i64 faults, threads, started, stack; };

int statm_open(struct statm *statm, int pid);
int statm_read(struct statm *statm);           /* 0 once the process is gone: a zombie's are all zeros, and not taken */
int statm_is_there(const struct statm *statm); /* 0 once somebody has waited for the process: its number may be another's by now */
void statm_close(struct statm *statm);
int stat_read(int pid, struct stat_reading *stat);
int stat_is_over(const struct stat_reading *stat);   /* nothing is left of the process but its exit code */
int status_read(int task, char fields[FIELDS_ROOM]); /* /proc/PID/status; 0 without memory */
int rollup_read(int task, char fields[FIELDS_ROOM]); /* /proc/PID/smaps_rollup; 0 where it may not be read */
void tables_read(int task, char fields[FIELDS_ROOM]); /* VmPTE, HugetlbPages and Shared_Hugetlb, each `-` where it is not told */
i64 number_behind(const char *text, const char *name); /* -1 for none */
i64 number_in(int descriptor, const char *name); /* -1 for none; name: as the line's begin has it, after an end of line. The file is closed */
i64 figure_of(int pid, const char *file, const char *name); /* the same in a file of /proc/PID */
int reset_high_water(int pid);
void name_of(int pid, char name[NAME_ROOM]);
void command_of(int pid, char command[COMMAND_ROOM]); /* its words with one space between them, cut off where the room ends */
int same_memory(int task, int other);
const char *path_of(int pid, const char *name); /* up to the next call */
int open_of(int pid, const char *name);
int children_open(int pid, int thread); /* a list; -1 on a kernel without them (CONFIG_PROC_CHILDREN) */
void pids_parse(struct pids *pids, const char *text, size_t length);
void children_of(struct pids *pids, int pid); /* of all its threads */

i64 oom_kills(void);          /* since the machine started (/proc/vmstat) */
i64 oom_kills_inside(void);   /* in this container and the groups below it; -1 outside of one */
i64 huge_faults(void);        /* how often a page fault of any process has brought in a huge page (/proc/vmstat) */
int kernel_counts_late(void); /* before Linux 6.17 the counters behind status lag; for smaps_rollup the kernel walks the pages */

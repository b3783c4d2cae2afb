/* What all files of the recorder share: lists, text and numbers without stdio (a third of the program), clocks, and shares of the time.
 *
 * memprof/recorder/__init__.py says what the recorder does, memprof/recording/__init__.py what it writes. The modules in Python beside this
 * folder do the same, and have the reasons. C99, POSIX and Linux, no library but the C library's. Each file owns its state.
 */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int64_t i64;

#define NEVER ((i64)1 << 62)
#define BEGIN_HASH 14695981039346656037u
#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* Append to a list, which has items, their count, and the room that there is for them. */
#define ADD(list, item) (*(MAKE_ROOM(list), &(list)->items[(list)->count++]) = (item))
#define MAKE_ROOM(list) ((list)->items = grown((list)->items, (list)->count, &(list)->room, sizeof *(list)->items))

struct words { char **items; size_t count, room; };
struct pids { int *items; size_t count, room; };

/* A share of one CPU from its first use on, and an allowance beyond it: a short run is looked at too. On a busy machine much more time
 * passes than the recorder's own CPU time, which alone counts. */
struct budget { double share; i64 allowance_ns, begin_ns, spent_ns; };

static inline i64 max64(i64 left, i64 right) { return left > right ? left : right; }
static inline i64 min64(i64 left, i64 right) { return left < right ? left : right; }

i64 now_ns(void); /* CLOCK_MONOTONIC */
i64 cpu_ns(void); /* of the recorder */
int budget_is_left(struct budget *budget, i64 now);
void budget_spend(struct budget *budget, i64 since_ns); /* what was used since cpu_ns was since_ns */

void *take_memory(size_t size); /* or the end, where there is none left */
void *grown(void *items, size_t count, size_t *room, size_t size); /* with room for one more of `count` items */
int pids_have(const struct pids *pids, int pid);

i64 read_int(const char *text, const char **rest); /* after spaces; *rest is `text` where no number stands. rest may be NULL */
char *add_text(char *at, const char *text);        /* a copy, ended by 0; returns where that stands */
char *add_int(char *at, i64 number);
int begins(const char *text, const char *with);
uint64_t hashed(uint64_t hash, const void *bytes, size_t length); /* FNV-1a; begin with BEGIN_HASH */
void each_line(int descriptor, void (*take)(char *line, void *to), void *to); /* a line is ended by 0. The file is closed */
size_t read_whole(int descriptor, char *text, size_t size); /* its length, 0 for none; ended by 0. The file is closed */

/* The order: lines of facts on standard input, up to an empty line (memprof/recorder/__init__.py has them). It is read once, and stays. */
#pragma once

#include "base.h"

/* What a mark's line causes that holds all of the texts: the polling period from there on, the resident set in bytes at which its process
 * is stopped (0 for none), and whether that is about to stop itself. */
struct rule { i64 interval, bytes, hold; struct words texts; };

/* Names as in the order; times in ns. input, pid: -1 and 0 where there is none. */
struct order {
    struct words argv, env, unset, setting, rlimit, file, writer, watch;
    char *cwd, *stdin_text, *cpus, *group, *log, *cache;
    i64 input, pad, personality, terminal, drop, tree, swap, output, reset, eager, size, pid, started;
    i64 interval, hold, timeout, grace, silence;
    struct { struct rule *items; size_t count, room; } rules;
};

/* Reads from standard input. NULL where it is not understood, and why. early: what has come behind it already. */
const struct order *order_read(const char **reason, const char **early, size_t *early_length);

/* The recording: lines of events, kept until they are worth a write, and written to standard output only as far as it takes them at once.
 *
 * Descriptor 1 is never made non-blocking, as it may be shared with a shell: where poll(2) tells of room, that is PIPE_BUF bytes at least.
 */
#pragma once

#include "base.h"

/* A line, or a part of one: %d stands for an int, %l for an i64, %k for one that is `-` below 0, %s for a word, %e for a TEXT that ends
 * with 0, %t for a TEXT and its length. */
void line(const char *format, ...);

void recording_flush(void);    /* as far as that needs no waiting */
int recording_waits(void);     /* whether the last flush left something */
int recording_is_full(void);   /* nobody takes what is written: nothing may be added but what cannot be left out */
int recording_is_broken(void); /* nobody will ever take any more: the child goes on until somebody says otherwise */

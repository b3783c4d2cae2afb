/* One loop, no thread: polls the processes, follows the child's marks and output, does what memprof asks for, and keeps to the time limits.
 *
 * The child's end is learnt from SIGCHLD and waitid, never from the end of a pipe, which a grandchild may hold.
 */
#pragma once

#include "launch.h"

void loop_begin(void); /* before anything is started: SIGCHLD and SIGTERM arrive while the loop waits, and only then */

/* Until the child has ended, or nothing is left to look at. early: the bytes on standard input behind the order. 0 where memprof is gone, or
 * wants no more of it. */
int loop_run(const struct order *order, const struct child *child, const char *early, size_t early_length);
int loop_was_limited(void); /* whether the child's time was over */
void loop_tell_rest(void); /* what is known at the end */
int loop_finish(i64 silence_ns); /* wait for who reads the recording; 0 where nobody wants it any more */

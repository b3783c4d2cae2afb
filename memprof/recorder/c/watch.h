/* A control group that is looked at: which processes are in it and in the groups below it, and what the kernel charges it. */
#pragma once

#include "base.h"

void watch_begin(const struct words *folders);     /* the group's own, then those of the groups above it; none: nothing is looked at */
int watch_members(i64 now_ns, struct pids *pids); /* those that can be seen from here; 0 if they were read a moment ago */
void watch_tell(void);                             /* its figures, as far as they have changed; also finds the groups below it */

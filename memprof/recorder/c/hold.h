/* Processes that stand still, or are about to, so that memprof can look at them: by a signal, or because they stop themselves. */
#pragma once

#include "base.h"

void hold_expect(int pid, const char *why); /* it is about to stop. why: as in the recording, and not copied */
void hold_stop(int pid, const char *why);
void hold_let_go(int pid); /* if it stands still */
int hold_is_active(void);  /* whether any stands still, or is about to */
void hold_step(i64 now, i64 limit_ns); /* say of each when it stands still, and let it go at the limit; 0 for none */

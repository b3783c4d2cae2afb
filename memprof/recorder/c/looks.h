/* Looks at processes that cost more than statm: one after another, within a share of the recorder's time, and closer ones at the program. */
#pragma once

#include "base.h"

void looks_turn(i64 now, int in_turn, int swap); /* at each poll. swap: status of each process is wanted every 10 ms, whatever it costs */
void look_closer(const char *text, size_t length, int reset, int exact); /* exact: shares are read on every kernel */

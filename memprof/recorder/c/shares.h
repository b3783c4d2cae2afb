/* Rounds of readings of the shares (PSS) of all processes, a few at a time: when a round is worth its cost (rounds.py). */
#pragma once

#include "base.h"

void shares_step(i64 now); /* after each poll: begin a round if it is time for it, or read on */

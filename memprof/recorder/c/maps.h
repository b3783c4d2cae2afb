/* Which parts of which files the processes have mapped: what they can have of files together at most (mappings.py). */
#pragma once

#include "base.h"

void maps_step(i64 now); /* after each poll: read if it is worth it, and again at the next poll */

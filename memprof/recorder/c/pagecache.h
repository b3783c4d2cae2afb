/* Brings the page cache of a model's files to one state: it decides how much of a mapped file is resident (pagecache.py). */
#pragma once

#include "base.h"

void pagecache_prepare(const struct words *paths, const char *state, int drop_first); /* warm or cold; asis, or NULL, leaves them */

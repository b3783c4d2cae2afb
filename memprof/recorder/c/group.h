/* A control group with a memory limit for one child: made before it starts, joined before its exec, removed when it has ended. */
#pragma once

#include "base.h"

int group_make(const char *folder, const struct words *settings); /* 0, or an errno */
int group_join(void);       /* for a child between fork and exec; 0 with errno */
/* Write its figures, if there is one. reset: 1 if its peaks begin again, where the kernel lets them; below 0 for a reading that no mark asks for:
 * it is written where a figure has changed. */
void group_tell(int reset);
void group_remove(void);

/* A control group with a memory limit for one child: made before it starts, joined before its exec, removed when it has ended. */
#pragma once

#include "base.h"

int group_make(const char *folder, const struct words *settings); /* 0, or an errno */
int group_join(void);       /* for a child between fork and exec; 0 with errno */
void group_tell(int reset); /* its figures, if there is one; reset: its peaks begin again, if the kernel lets them */
void group_remove(void);

/* Whether the kernel has ended a process for lack of memory: a count of such kills tells that there was one, the log of whom (kills.py). */
#pragma once

void kills_begin(void); /* before the program starts */
void kills_tell(void);  /* once it has ended by SIGKILL */

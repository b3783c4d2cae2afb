/* Memory that no resident set counts: buffers that devices share, clients of DRM drivers, memfds, page tables and huge pages (devices.py). */
#pragma once

#include "base.h"

void devices_step(i64 now);  /* after each poll: read the processes one after another, within a share of the time */
void devices_look(int must); /* read all in whole. must: those with a device's file even if there is no time, and the list of processes is read again */
void devices_tell_left_out(void);

/* Starts the child: its pipes, its environment, its limits, and the CPUs and the control group that it runs in. */
#pragma once

#include "order.h"

/* What is looked at: its process id, descriptors to read its marks and output and to write its input, -1 for none; and when it began. */
struct child { int pid, marks, output, input; i64 begin_ns; };

i64 begin_tell(int cpus); /* it begins now; when that is */
int cpus_of(int pid);     /* on how many it may run, 0 for a process that has ended */
int launch(const struct order *order, struct child *child); /* 0 where it cannot be started: the recording then says why */

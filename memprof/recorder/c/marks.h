/* The lines on the marks' descriptor, as far as the recorder reads them: where they end, which process wrote them, and which rule they
 * fit. A program may write anything there. */
#pragma once

#include "launch.h"

void marks_begin(const struct order *order, const struct child *child);
int marks_descriptor(void);  /* -1 once it has ended */
void marks_read(void);       /* once only: a program that writes without end must not keep the loop from its other work */
i64 marks_interval(void);    /* the polling period, as the newest rule has it */
void marks_stop_large(void); /* after a poll: stop the process that has reached the size of a rule */

/* What the program prints, or what a process that already runs appends to a log (log.py): pieces of it are events if the order wants
 * them, and its end is kept. */
#pragma once

#include "order.h"

void output_begin(const struct order *order, int descriptor);
int output_descriptor(void); /* -1 once it has ended */
void output_read(void);      /* once only, as for marks */
i64 output_look_ns(void);    /* when a look is due after a piece, NEVER for none */
void output_look(void);
void output_tell_tail(void);
int log_open(const char *path); /* from its end on; 0, or an errno */
void log_read(void);            /* after each poll */

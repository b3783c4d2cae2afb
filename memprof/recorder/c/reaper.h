/* Waits for the child (root) and for orphans of its tree, which have become the recorder's children, and ends what is left of them. */
#pragma once

int reaper_reap(int root);  /* wait for all children that have ended; 0 where there are no others */
int reaper_status(void);    /* the child's wait status, -1 as long as it runs */
void reaper_kill(int root); /* the child and all that has become the recorder's, until the child has ended */
/* End the remaining processes. patient: first wait for orphans that clean up and end by themselves, as Python's resource tracker. */
void reaper_sweep(int root, int patient);

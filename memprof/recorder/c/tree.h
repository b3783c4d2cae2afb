/* The processes that are looked at: who they are, statm of all of them at each poll, and other readings, of which none is written twice.
 *
 * Children are found in /proc/PID/task/TID/children, on an open descriptor a process. A child that vfork has made runs in its parent's
 * memory until it execs (kcmp tells).
 */
#pragma once

#include "procfs.h"

/* A list of children: an open descriptor, -1 for none, and what it held. */
struct listing { int descriptor; char *text; size_t length; };

/* What a process has of devices. used: it, or who started it, has a device's file or huge pages, or had some. tells: a client of it
 * tells of memory. whole_ns: when that was last read in whole; maps_ns: when maps was, 0 to read it in any case, and size that of the
 * address space then; signature: see signature_of in devices.c; ranges, written: hashes of the lines of maps that are of buffers (0 to read
 * on), and of the newest lines of buffers, clients and tables. links: the descriptors of buffers and clients; kind: b, m, d, or s for a
 * driver that is closed, whose name is silent. mapped: the buffers that it has mapped; resident: bytes that its resident set has of them;
 * addresses: of the first. */
struct device_files {
    int used, tells;
    i64 whole_ns, maps_ns, size;
    uint64_t signature, ranges, written[3];
    struct { struct device_link { int number; char kind; const char *silent; } *items; size_t count, room; } links;
    struct { struct mapped { i64 inode, size, resident; char kind, addresses[40]; } *items; size_t count, room; } mapped;
};

/* parent: 0 for none that is known. twin: the process in whose memory it runs until it execs, 0 for none. listing: of its first thread;
 * kids: of all threads. stat, status, command, pages: as they were written last, pages being its statm; moved: whether that has changed
 * since its stat was written. look_ns, status_ns: when it was looked at, and its status read. waits: for its shares to be read. parts: a
 * hash of what it has mapped. command_stack, command_name: the stack and the name beside which its command was read. */
struct process {
    int pid, parent, twin, moved, waits;
    struct statm statm;
    struct stat_reading stat;
    char pages[FIELDS_ROOM], status[FIELDS_ROOM], command[COMMAND_ROOM], command_name[NAME_ROOM];
    struct listing listing;
    struct pids kids;
    i64 resident, shared, look_ns, status_ns, command_stack;
    uint64_t parts;
    struct device_files devices;
};

enum life { UNREADABLE, OVER, ALIVE };

enum life process_tell_stat(struct process *process);
void process_tell_status(struct process *process);
void process_tell_command(struct process *process); /* read again once it is another program */
int process_has_kin(const struct process *process); /* whether another has the same start of stack, as after a fork */
void process_list_threads(struct process *process); /* find the children of its other threads too: that costs more */

/* What tells others whether it is worth it to read more; all of it only grows. changes: how often a process has come or gone, or got
 * memory of its own; moved, moved_shared: pages by which resident sets, and their file-backed parts, have changed, with those of processes
 * that came or went. */
struct motion { i64 changes, moved, moved_shared; };

/* With this process. is_ours: it was started, so that it belongs to the recording even if it has ended, and orphans fall to the recorder.
 * lists: whether the processes that it starts belong to it. */
void tree_begin(int pid, int is_ours, int lists);
void tree_add_named(int pid); /* a process that a mark names, if it was not found before */
int tree_program(void); /* the first process of those that marks have named and that live, else the first */

/* A poll: who there is, then statm of all. Other looks stand between the two. */
void tree_list(void);
void tree_read(void);
void tree_tell_poll(void);  /* the line of the newest poll, if it has none yet */
void tree_end(int pid);     /* a child of the recorder has ended, and is waited for now */
i64 tree_polls(void);
size_t tree_count(void);
size_t tree_count_members(void); /* those that do not run in another's memory */
struct process *tree_at(size_t place);
struct process *tree_of(int pid); /* NULL for none */
const struct motion *tree_motion(void);
int tree_has_leaving(void); /* whether memory of one that is gone may still be given back: until then the shares of others are too small */

#include "marks.h"
#include "devices.h"
#include "group.h"
#include "hold.h"
#include "recording.h"
#include "tree.h"

#define LINE_LIMIT 65536

static struct {
    int descriptor, eager, skip, pid; /* skip: a line that is too long goes on; pid: the process to which the newest rule belongs */
    struct rule *rules, *newest, first; /* first: before any fits */
    size_t count, filled;               /* rules, and bytes of the lines */
} marks = {.descriptor = -1, .newest = &marks.first};

static char lines[2 * LINE_LIMIT];

void marks_begin(const struct order *order, const struct child *child) {
    size_t size = order->rules.count * sizeof *marks.rules;
    marks.descriptor = child->marks;
    marks.eager = order->eager != 0;
    marks.pid = child->pid;
    marks.first.interval = order->interval;
    marks.first.bytes = order->size;
    marks.count = order->rules.count;
    if (size) marks.rules = memcpy(take_memory(size), order->rules.items, size);
}

int marks_descriptor(void) { return marks.descriptor; }
i64 marks_interval(void) { return marks.newest->interval; }

static int fits(const struct rule *rule, const char *text, size_t length) {
    size_t at;
    for (at = 0; at < rule->texts.count; ++at)
        if (memmem(text, length, rule->texts.items[at], strlen(rule->texts.items[at])) == NULL) return 0;
    return 1;
}

/* The process that has written a line, 0 where it does not tell. */
static int writer_of(const char *text, size_t length) {
    static const char name[] = "\"pid\":";
    const char *found = memmem(text, length, name, sizeof name - 1);
    char number[16] = "";
    if (found == NULL) return 0;
    found += sizeof name - 1;
    memcpy(number, found, (size_t)min64(12, text + (i64)length - found));
    return (int)max64(0, min64(read_int(number, NULL), INT32_MAX));
}

static void take_line(const char *text, size_t length) {
    i64 now = now_ns();
    struct rule *rule = marks.rules, *end = marks.rules + marks.count;
    int pid = writer_of(text, length);
    while (rule < end && !fits(rule, text, length)) ++rule;
    tree_add_named(pid);
    tree_tell_poll();
    if (rule < end) devices_look(1), group_tell(1);
    line("mark %l %l %t\n", now, tree_polls(), text, length);
    if (rule < end || marks.eager) recording_flush();
    if (rule == end) return;
    marks.newest = rule;
    marks.pid = pid;
    if (rule->hold && tree_of(pid) != NULL) hold_expect(pid, "itself");
}

static void close_marks(void) {
    struct process *process = tree_of(tree_program());
    int alive = process != NULL && statm_read(&process->statm); /* who ends closes it too, but only when its memory has gone */
    line("closed %l %d\n", now_ns(), alive);
    close(marks.descriptor);
    marks.descriptor = -1;
}

static void skip_line(void) {
    if (!marks.skip) line("fault %l mark 1\n", now_ns());
    marks.skip = 1;
}

void marks_read(void) {
    char *begin = lines, *end;
    ssize_t count = marks.descriptor >= 0 ? read(marks.descriptor, lines + marks.filled, sizeof lines - marks.filled) : -1;
    if (count == 0) close_marks();
    if (count <= 0) return;
    for (marks.filled += (size_t)count; (end = memchr(begin, '\n', marks.filled - (size_t)(begin - lines))) != NULL; begin = end + 1) {
        if (end - begin > LINE_LIMIT) skip_line();
        if (!marks.skip) take_line(begin, (size_t)(end - begin));
        marks.skip = 0;
    }
    marks.filled -= (size_t)(begin - lines);
    memmove(lines, begin, marks.filled);
    if (marks.filled <= LINE_LIMIT && !marks.skip) return;
    skip_line();
    marks.filled = 0;
}

void marks_stop_large(void) {
    const struct process *process = marks.newest->bytes ? tree_of(marks.pid) : NULL;
    if (process == NULL || process->resident * sysconf(_SC_PAGESIZE) < marks.newest->bytes) return;
    marks.newest->bytes = 0; /* once, also where its phase comes again */
    hold_stop(marks.pid, "size");
}

#include "output.h"
#include "looks.h"
#include "recording.h"
#include "tree.h"
#include <sys/stat.h>

#define READ 65536
#define TAIL 4096
#define LOOK_EVERY_NS 1000000

static struct {
    const struct order *order;
    int descriptor, look_due;
    i64 looked_ns, size;
    size_t tail_length;
    struct { const char *path; int descriptor; } log;
} output = {.descriptor = -1, .log = {NULL, -1}};

static char data[READ], tail[TAIL];

void output_begin(const struct order *order, int descriptor) {
    output.order = order;
    output.descriptor = descriptor;
}

int output_descriptor(void) { return output.descriptor; }
i64 output_look_ns(void) { return output.look_due ? output.looked_ns + LOOK_EVERY_NS : NEVER; }

void output_look(void) {
    output.look_due = 0;
    output.looked_ns = now_ns();
    look_closer("output", 6, output.order->reset && !output.order->pid, 0);
}

static void keep_tail(const char *text, size_t length) {
    size_t added = (size_t)min64((i64)length, TAIL), kept = (size_t)min64((i64)output.tail_length, (i64)(TAIL - added));
    memmove(tail, tail + output.tail_length - kept, kept);
    memcpy(tail + kept, text + length - added, added);
    output.tail_length = kept + added;
    output.size += (i64)length;
}

static void take(const char *text, size_t length) {
    i64 now = now_ns();
    keep_tail(text, length);
    if (!output.order->output) return;
    tree_tell_poll();
    line("output %l %t\n", now, text, length);
    output.look_due = 1;
    if (now >= output_look_ns()) output_look();
    else if (output.order->eager) recording_flush();
}

void output_read(void) {
    ssize_t count = output.descriptor >= 0 ? read(output.descriptor, data, READ) : -1;
    if (count > 0) take(data, (size_t)count);
    if (count > 0 || output.descriptor < 0 || (count < 0 && (errno == EAGAIN || errno == EINTR))) return;
    close(output.descriptor); /* EIO: how a terminal says that nobody has its other side open */
    output.descriptor = -1;
}

void output_tell_tail(void) { line("tail %l %l %t\n", now_ns(), output.size, tail, output.tail_length); }

static int open_log(void) { return open(output.log.path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); }

int log_open(const char *path) {
    struct stat found;
    output.log.path = path;
    output.log.descriptor = open_log();
    if (output.log.descriptor < 0) return errno;
    if (fstat(output.log.descriptor, &found) == 0 && S_ISREG(found.st_mode)) lseek(output.log.descriptor, 0, SEEK_END);
    return 0;
}

/* Whether the log begins again, and stand at its beginning then. A new file counts once it has lines: the old one may still get some. */
static int begins_anew(void) {
    struct stat before, after;
    int descriptor;
    if (fstat(output.log.descriptor, &before) < 0 || !S_ISREG(before.st_mode)) return 0;
    if (before.st_size < lseek(output.log.descriptor, 0, SEEK_CUR)) return lseek(output.log.descriptor, 0, SEEK_SET) == 0;
    if (stat(output.log.path, &after) < 0 || !S_ISREG(after.st_mode) || !after.st_size) return 0;
    if ((before.st_dev == after.st_dev && before.st_ino == after.st_ino) || (descriptor = open_log()) < 0) return 0;
    close(output.log.descriptor);
    output.log.descriptor = descriptor;
    return 1;
}

void log_read(void) {
    size_t begin = 0;
    ssize_t count;
    if (output.log.descriptor < 0) return;
    count = read(output.log.descriptor, data, READ);
    if (count == 0 && begins_anew()) {
        data[begin++] = '\n'; /* what was the last line had no end */
        count = read(output.log.descriptor, data + begin, READ - begin);
    }
    if (count > 0 || begin) take(data, begin + (size_t)max64(count, 0));
}

#include "recording.h"
#include <poll.h>
#include <stdarg.h>

#define BATCH 32768
#define PIECE 4096 /* PIPE_BUF */
#define MOST_WAITING (8 << 20)

static struct {
    char *bytes;
    size_t begin, end, room; /* of the bytes that wait, and their room */
    size_t added;            /* since the last flush */
    int left, broken;        /* left: by the last flush */
} out;

static void make_room(size_t length) {
    size_t waiting = out.end - out.begin, room = BATCH;
    char *before = out.bytes;
    while (room < waiting + length + waiting / 2) room *= 2; /* or all would be moved for each line */
    if (room != out.room) out.bytes = take_memory(room);
    if (waiting) memmove(out.bytes, before + out.begin, waiting);
    if (before != out.bytes) free(before);
    out.begin = 0;
    out.end = waiting;
    out.room = room;
}

static void add(const char *bytes, size_t length) {
    if (out.broken || !length) return;
    if (out.end + length > out.room) make_room(length);
    memcpy(out.bytes + out.end, bytes, length);
    out.end += length;
    out.added += length;
}

static void add_escaped(const char *text, size_t length) {
    size_t from = 0, at;
    for (at = 0; at < length; ++at) {
        if (text[at] != '\\' && text[at] != '\n') continue;
        add(text + from, at - from);
        add(text[at] == '\n' ? "\\n" : "\\\\", 2);
        from = at + 1;
    }
    add(text + from, length - from);
}

void line(const char *format, ...) {
    va_list fields;
    va_start(fields, format);
    for (;; ++format) {
        char number[24];
        const char *text = number;
        size_t length = strcspn(format, "%");
        add(format, length);
        format += length;
        if (!*format++) break;
        if (*format == 'd') add_int(number, va_arg(fields, int));
        else if (*format == 'l' || *format == 'k') add_int(number, va_arg(fields, i64));
        else text = va_arg(fields, const char *);
        if (*format == 'k' && *number == '-') number[1] = 0;
        if (*format == 't') add_escaped(text, va_arg(fields, size_t));
        else if (*format == 'e') add_escaped(text, strlen(text));
        else add(text, strlen(text));
    }
    va_end(fields);
    if (out.added >= BATCH && out.bytes[out.end - 1] == '\n') recording_flush();
}

/* Write a piece if there is room for it; 0 where there is none. */
static int write_piece(void) {
    struct pollfd output = {1, POLLOUT, 0};
    ssize_t count;
    if (poll(&output, 1, 0) <= 0) return 0;
    count = write(1, out.bytes + out.begin, (size_t)min64((i64)(out.end - out.begin), PIECE));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    out.broken = count < 0;
    out.begin = out.broken ? out.end : out.begin + (size_t)count;
    return 1;
}

void recording_flush(void) {
    out.added = 0;
    while (out.begin < out.end && write_piece()) {}
    out.left = out.begin < out.end;
    if (!out.left) out.begin = out.end = 0;
    if (out.left || out.room <= 4 * BATCH) return;
    free(out.bytes); /* of a time when nobody took anything */
    out.bytes = NULL;
    out.room = 0;
}

int recording_waits(void) { return out.left; }
int recording_is_full(void) { return out.end - out.begin > MOST_WAITING; }
int recording_is_broken(void) { return out.broken; }

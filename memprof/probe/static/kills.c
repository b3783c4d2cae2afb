/* Whether the kernel ended the child for want of memory: see memprof/probe/kills.py. */
#include "probe.h"
#include <fcntl.h>
#include <sys/stat.h>

#define FIRST_NAMESPACE 0xEFFFFFFC /* PROC_PID_INIT_INO */
#define LOG_WITHIN_NS 200000000

static struct {
    i64 before, before_inside;
    int log;
} kills;

void kills_begin(void) {
    struct stat names;
    kills.before = oom_kills(), kills.before_inside = oom_kills_inside(), kills.log = -1;
    if (stat("/proc/self/ns/pid", &names) != 0 || names.st_ino != FIRST_NAMESPACE) return;
    kills.log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (kills.log >= 0 && lseek(kills.log, 0, SEEK_END) < 0) close(kills.log), kills.log = -1;
}

/* 1 if the log names it, 0 if it names only others, -1 if it cannot be known. */
static int named(void) {
    static const char killed[] = ": Killed process ";
    i64 count = 0, end_ns = now_ns() + LOG_WITHIN_NS;
    while (kills.log >= 0) {
        char record[8192], *line;
        ssize_t length = read(kills.log, record, sizeof record - 1);
        if (length < 0 && errno != EAGAIN) return -1; /* EPIPE: some of the log is lost */
        if (length < 0) {
            if (count >= oom_kills() - max64(kills.before, 0)) return 0;
            if (now_ns() > end_ns) return -1;
            pause_ns(5000000);
            continue;
        }
        record[length] = 0;
        line = strstr(record, killed);
        if (line != NULL) {
            i64 pid = read_int(line + strlen(killed), NULL);
            ++count;
            if (pid == m.pid || pid == m.measured) return 1;
        }
    }
    return -1;
}

int kills_ended(void) {
    i64 inside = oom_kills_inside();
    if (oom_kills() <= max64(kills.before, 0)) return 0;
    if (inside >= 0 && kills.before_inside >= 0 && inside <= kills.before_inside) return 0;
    return named();
}

/* /dev/kmsg (Documentation/ABI/testing/dev-kmsg): each read gives one record; EAGAIN at the end of the log; EPIPE if records were lost.
 * mm/oom_kill.c writes `...: Killed process PID (NAME) ...`, with a number of the machine's first PID namespace. */
#include "kills.h"
#include "procfs.h"
#include "recording.h"
#include <sys/stat.h>

#define FIRST_NAMESPACE 0xEFFFFFFC /* PROC_PID_INIT_INO */
#define KILLED ": Killed process "
#define LOG_WITHIN_NS 2000000000   /* the kernel counts a kill first, sends the signal then, and writes its line last (kills.py) */

static struct { i64 machine, inside; int log; } kills = {0, 0, -1}; /* the counts of the begin */

void kills_begin(void) {
    struct stat names;
    kills.machine = oom_kills();
    kills.inside = oom_kills_inside();
    line("kills %l %k %k\n", now_ns(), kills.machine, kills.inside);
    if (stat("/proc/self/ns/pid", &names) < 0 || names.st_ino != FIRST_NAMESPACE) return;
    kills.log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (lseek(kills.log, 0, SEEK_END) < 0) kills.log = -1;
}

void kills_tell(void) {
    i64 machine = oom_kills(), inside = oom_kills_inside(), left = machine - max64(kills.machine, 0), end_ns = now_ns() + LOG_WITHIN_NS;
    line("kills %l %k %k\n", now_ns(), machine, inside);
    if (inside >= 0 && inside == kills.inside) return; /* it was another container's */
    while (kills.log >= 0 && left > 0 && now_ns() < end_ns) {
        char record[8192];
        ssize_t length = read(kills.log, record, sizeof record - 1);
        const char *found;
        record[max64(length, 0)] = 0;
        found = strstr(record, KILLED);
        if (found != NULL) line("kernel %l %l\n", now_ns(), read_int(found + sizeof KILLED - 1, NULL));
        left -= found != NULL;
        if (length < 0 && errno == EPIPE) line("kernel %l -\n", now_ns());
        else if (length < 0) usleep(5000);
    }
}

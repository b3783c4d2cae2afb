#include "watch.h"
#include "procfs.h"
#include "recording.h"
#include <dirent.h>
#include <limits.h>

#define LIST_NS 10000000 /* between two readings of who is in it: children of those that are known are found at each poll anyway */
#define WORD_ROOM 24
#define LINE_ROOM (11 * WORD_ROOM)

/* groups: the folders of the group and of those below it. told: the lines as they were written last, first that of the charges, then that of
 * the bounds of each folder. */
static struct {
    const struct words *folders;
    struct words groups, told;
    int is_first;
    i64 next_ns;
} watch;

static char *joined(const char *folder, const char *name) {
    static char path[PATH_MAX];
    if (strlen(folder) + strlen(name) + 2 > sizeof path) return add_text(path, ""); /* a path that no file has */
    add_text(add_text(add_text(path, folder), "/"), name);
    return path;
}

/* A file's text behind the end of a line, so that each of its rows stands behind one. */
static const char *text_of(const char *folder, const char *name) {
    static char text[1 << 16] = "\n";
    read_whole(open(joined(folder, name), O_RDONLY | O_CLOEXEC), text + 1, sizeof text - 1);
    return text;
}

/* Add a space and the word that stands behind a row's name, `-` for none. */
static char *add_word(char *at, const char *text, const char *row) {
    const char *word = strstr(text, row);
    size_t length = word != NULL ? strcspn(word += strlen(row), " \n") : 0;
    char copy[WORD_ROOM] = NOTHING;
    if (length && length < sizeof copy) memcpy(copy, word, length), copy[length] = 0;
    return add_text(add_text(at, " "), copy);
}

static char *add_file(char *at, const char *folder, const char *name) { return add_word(at, text_of(folder, name), "\n"); }

static void find_groups(const char *folder) {
    struct dirent *entry;
    DIR *listing = opendir(folder);
    char *kept = take_memory(strlen(folder) + 1); /* `folder` may be what `joined` has made */
    add_text(kept, folder);
    ADD(&watch.groups, kept);
    while (listing != NULL && (entry = readdir(listing)) != NULL)
        if (entry->d_type == DT_DIR && *entry->d_name != '.') find_groups(joined(kept, entry->d_name));
    if (listing != NULL) closedir(listing);
}

void watch_begin(const struct words *folders) {
    size_t at;
    watch.folders = folders;
    for (at = 0; at <= folders->count; ++at) {
        char *line = take_memory(LINE_ROOM);
        *line = 0;
        ADD(&watch.told, line);
    }
    if (!folders->count) return;
    watch.is_first = access(joined(folders->items[0], "memory.usage_in_bytes"), F_OK) == 0;
    find_groups(folders->items[0]);
}

/* Version 1 keeps an old list for as long as a file stays open (cgroup_pidlist_start in kernel/cgroup/cgroup-v1.c). */
int watch_members(i64 now_ns, struct pids *pids) {
    size_t at;
    if (!watch.groups.count || now_ns < watch.next_ns) return 0;
    watch.next_ns = now_ns + LIST_NS;
    for (at = 0; at < watch.groups.count; ++at) {
        const char *text = text_of(watch.groups.items[at], "cgroup.procs");
        pids_parse(pids, text, strlen(text));
    }
    return 1;
}

/* Version 1 counts those of a group alone, without the groups below it. */
static char *add_kills(char *at) {
    char word[WORD_ROOM + 1];
    i64 sum = -1, count;
    size_t place;
    if (!watch.is_first) return add_word(at, text_of(watch.folders->items[0], "memory.events"), "\noom_kill ");
    for (place = 0; place < watch.groups.count; ++place) {
        add_word(word, text_of(watch.groups.items[place], "memory.oom_control"), "\noom_kill ");
        count = strcmp(word, " " NOTHING) != 0 ? read_int(word, NULL) : -1;
        if (count >= 0) sum = max64(sum, 0) + count;
    }
    return sum >= 0 ? add_int(add_text(at, " "), sum) : add_text(at, " " NOTHING);
}

/* Write a line unless all its figures could not be read, as those of a group that is gone, or are as they were. */
static void tell(const char *kind, size_t place, const char *figures, const char *text) {
    char *told = watch.told.items[place];
    if (!figures[strspn(figures, " " NOTHING)] || strcmp(told, text) == 0) return;
    add_text(told, text);
    line("%s %l%s\n", kind, now_ns(), text);
}

static void tell_charges(const char *folder) {
    static const char *first[] = {"\ntotal_inactive_file ", "\ntotal_rss ", "\ntotal_cache "};
    static const char *second[] = {"\ninactive_file ", "\nanon ", "\nfile ",       "\nkernel ",
                                   "\nkernel_stack ",  "\nslab ", "\npagetables ", "\nsock "};
    char text[LINE_ROOM], *at = add_file(text, folder, watch.is_first ? "memory.usage_in_bytes" : "memory.current");
    const char **rows = watch.is_first ? first : second, *stat = text_of(folder, "memory.stat");
    size_t row;
    for (row = 0; row < (watch.is_first ? LENGTH(first) : LENGTH(second)); ++row) at = add_word(at, stat, rows[row]);
    if (watch.is_first) {
        at = add_text(add_file(at, folder, "memory.kmem.usage_in_bytes"), " - - -");
        at = add_file(at, folder, "memory.kmem.tcp.usage_in_bytes");
        add_word(at, text_of(folder, "memory.stat"), "\ntotal_swap ");
    } else add_file(at, folder, "memory.swap.current");
    tell("charge", 0, text, text);
}

static void tell_bounds(size_t depth) {
    const char *folder = watch.folders->items[depth];
    char text[LINE_ROOM], *figures = add_int(add_text(text, " "), (i64)depth);
    char *at = add_file(figures, folder, watch.is_first ? "memory.max_usage_in_bytes" : "memory.peak");
    at = add_file(at, folder, watch.is_first ? "memory.limit_in_bytes" : "memory.max");
    if (depth) add_text(at, " " NOTHING);
    else add_kills(at);
    tell("bound", depth + 1, figures, text);
}

void watch_tell(void) {
    size_t at;
    if (!watch.groups.count) return;
    for (at = 0; at < watch.groups.count; ++at) free(watch.groups.items[at]);
    watch.groups.count = 0;
    find_groups(watch.folders->items[0]);
    tell_charges(watch.folders->items[0]);
    for (at = 0; at < watch.folders->count; ++at) tell_bounds(at);
}

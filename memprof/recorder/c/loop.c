#include "loop.h"
#include "devices.h"
#include "group.h"
#include "hold.h"
#include "looks.h"
#include "maps.h"
#include "marks.h"
#include "output.h"
#include "reaper.h"
#include "recording.h"
#include "shares.h"
#include "tree.h"
#include "watch.h"
#include <poll.h>
#include <signal.h>

#define TICK_NS 100000000 /* between two occasions for anything but polls */
#define IDLE_NS 100000000 /* between two polls where the order has no period */
#define HOLD_NS 1000000
#define PERIODS 4096
#define LAST_READS 16 /* of marks and output written before the end; a grandchild may write for ever */

static volatile sig_atomic_t child_ended, term_came;

static struct {
    const struct order *order;
    struct child child;
    i64 interval_ns, next_ns, tick_ns, end_ns; /* next, tick: when to poll, and when to do anything else */
    i64 heard_ns, held_ns;                     /* when standard input last had anything; when a process was last seen held */
    i64 left_out;                              /* polls, as nobody takes what is written */
    int over, limited, quiet, told_to_end, printed; /* quiet: a requested end does not count as a limit; printed: output waits to be read */
    struct { char *items; size_t count, room; } command; /* whose end has not come yet */
    const char *unsent; /* of the child's input */
} loop;

/* How far apart the newest polls were that had the first period; last_ns: 0 if the last one had another, or was not made. */
static struct { i64 newest[PERIODS], count, last_ns; } periods;

static void tell_left_out(void) {
    if (loop.left_out) line("fault %l behind %l\n", now_ns(), loop.left_out);
    loop.left_out = 0;
}

static void read_all(i64 now) {
    tell_left_out();
    tree_list();
    looks_turn(now, (int)loop.order->tree, (int)loop.order->swap);
    tree_read();
    if (loop.order->tree) {
        shares_step(now);
        maps_step(now);
    }
    devices_step(now);
    log_read();
    marks_stop_large();
    if (loop.order->pid && !tree_count()) loop.over = 1;
}

static void poll_once(i64 now) {
    i64 period_ns = loop.interval_ns ? loop.interval_ns : IDLE_NS;
    if (recording_is_full()) ++loop.left_out;
    else read_all(now);
    loop.next_ns += period_ns;
    if (loop.next_ns <= now) loop.next_ns = now + period_ns;
    if (periods.last_ns && loop.interval_ns == loop.order->interval) periods.newest[periods.count++ % PERIODS] = now - periods.last_ns;
    periods.last_ns = loop.interval_ns ? now : 0;
}

/* In place of a poll: being looked at moves the figures of a process that is held. */
static void follow_holds(i64 now) {
    loop.end_ns += loop.held_ns ? now - loop.held_ns : 0;
    loop.held_ns = now;
    loop.next_ns = now + HOLD_NS;
    hold_step(now, loop.order->hold);
    periods.last_ns = 0;
}

static void end_within(i64 ns, int now) {
    loop.end_ns = min64(loop.end_ns, now_ns() + ns);
    loop.tick_ns = 0;
    if (!now) return;
    loop.quiet = 1;
    if (loop.order->pid) loop.over = 1;
    else kill(-loop.child.pid, SIGTERM);
}

/* A command, ended by 0. */
static void obey(const char *text, size_t length) {
    const char *value = text + strcspn(text, " "), *rest;
    i64 number = read_int(value, &rest);
    if (begins(text, "look ")) look_closer(text + 5, length - 5, !loop.order->pid, 1);
    if (rest == value || *rest || number < 0) return; /* `beat`, or what is not understood */
    if (begins(text, "leave ") || begins(text, "end ")) end_within(number, *text == 'e');
    if (loop.order->pid || number > INT32_MAX || tree_of((int)number) == NULL) return;
    if (begins(text, "stop ")) hold_stop((int)number, "told");
    if (begins(text, "continue ")) hold_let_go((int)number);
}

static void hear(const char *text, size_t length) {
    size_t at;
    for (at = 0; at < length; ++at) {
        ADD(&loop.command, text[at] == '\n' ? 0 : text[at]);
        if (text[at] != '\n') continue;
        obey(loop.command.items, loop.command.count - 1);
        loop.command.count = 0;
    }
}

static void read_commands(void) {
    char text[4096];
    ssize_t length = read(0, text, sizeof text);
    if (length < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (length <= 0) loop.told_to_end = 1;
    loop.heard_ns = now_ns();
    hear(text, (size_t)max64(length, 0));
}

/* Write the child's input, as far as the child reads; when all is written, the input ends. */
static void feed(void) {
    size_t left = strlen(loop.unsent);
    ssize_t count = left ? write(loop.child.input, loop.unsent, left) : 0;
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    loop.unsent += max64(count, 0);
    if (count >= 0 && *loop.unsent) return;
    close(loop.child.input);
    loop.child.input = -1;
}

static int is_writer(int pid) {
    char name[NAME_ROOM];
    size_t at = 0;
    name_of(pid, name);
    while (at < loop.order->writer.count && strcmp(loop.order->writer.items[at], name) != 0) ++at;
    return at < loop.order->writer.count;
}

/* A profiler writes its file at SIGTERM, and none at SIGKILL. The program is asked; if that is a profiler's script, its children, but not
 * the programs that write its file. */
static void ask_to_end(void) {
    int root = loop.child.pid, program = tree_program(), asked = 0;
    struct pids children = {0};
    size_t at;
    if (loop.order->writer.count && program == root) children_of(&children, root);
    for (at = 0; at < children.count; ++at)
        if (!is_writer(children.items[at])) asked |= kill(children.items[at], SIGTERM) == 0;
    if (!asked) kill(program, SIGTERM);
    free(children.items);
}

static void time_out(i64 now) {
    int asks = loop.order->grace && !loop.limited && !loop.quiet && !loop.order->pid;
    loop.end_ns = asks ? now + loop.order->grace : NEVER;
    loop.over = !asks;
    if (loop.order->pid) return;
    if (!loop.quiet) {
        loop.limited = 1;
        line("limit %l %s\n", now, asks ? "asked" : "killed");
        recording_flush();
    }
    if (asks) ask_to_end();
    else reaper_kill(loop.child.pid);
}

static void tick(i64 now) {
    tree_tell_poll();
    if (!recording_is_full()) watch_tell(), group_tell(-1);
    recording_flush();
    /* A connection can die without an end. */
    if (loop.order->silence && now - loop.heard_ns > loop.order->silence) loop.told_to_end = 1;
    else if (now >= loop.end_ns) time_out(now);
    loop.tick_ns = min64(now + TICK_NS, loop.end_ns);
}

static void on_signal(int number) {
    if (number == SIGCHLD) child_ended = 1;
    else term_came = 1;
}

void loop_begin(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked); /* what memprof was started with may block any */
    sigaddset(&blocked, SIGCHLD);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    sigaction(SIGCHLD, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

/* Wait for descriptors and signals; how many descriptors are ready. ns: below 0 for ever. */
static int wait_for(struct pollfd *watched, size_t count, i64 ns) {
    struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    sigset_t none;
    sigemptyset(&none);
    return ppoll(watched, (nfds_t)count, ns < 0 ? NULL : &time, &none);
}

/* A reader that takes nothing is waited for: then the child's output waits too. */
static void wait_and_serve(void) {
    int full = recording_is_full();
    struct pollfd watched[] = {{0, POLLIN, 0},
                               {full ? -1 : marks_descriptor(), POLLIN, 0},
                               {full ? -1 : output_descriptor(), POLLIN, 0},
                               {loop.child.input, POLLOUT, 0},
                               {recording_waits() ? 1 : -1, POLLOUT, 0}};
    i64 until_ns = min64(min64(loop.next_ns, loop.tick_ns), output_look_ns());
    if (wait_for(watched, LENGTH(watched), max64(until_ns - now_ns(), 0)) > 0) {
        if (watched[0].revents) read_commands();
        if (watched[1].revents) marks_read();
        if (watched[3].revents) feed();
        if (watched[4].revents) recording_flush();
    }
    loop.printed = watched[2].revents;
    if (term_came) loop.told_to_end = 1;
    if (!child_ended || loop.order->pid) return;
    child_ended = 0;
    reaper_reap(loop.child.pid);
    loop.over |= reaper_status() >= 0;
}

/* A mark may have changed when to poll. */
static void take_rule(void) {
    if (hold_is_active() != (loop.held_ns != 0)) loop.next_ns = 0; /* or a command has */
    if (!hold_is_active()) loop.held_ns = 0;
    if (marks_interval() == loop.interval_ns) return;
    loop.interval_ns = marks_interval();
    loop.next_ns = 0;
    periods.last_ns = 0;
}

int loop_run(const struct order *order, const struct child *child, const char *early, size_t early_length) {
    int reads;
    loop.order = order;
    loop.child = *child;
    loop.interval_ns = order->interval;
    loop.end_ns = order->timeout ? child->begin_ns + order->timeout : NEVER;
    loop.heard_ns = now_ns();
    loop.unsent = order->stdin_text != NULL ? order->stdin_text : "";
    marks_begin(order, child);
    output_begin(order, child->output);
    if (child->input >= 0) feed();
    if (order->pid) look_closer("begin", 5, 0, 1);
    hear(early, early_length);
    while (!loop.over) {
        i64 now;
        wait_and_serve();
        if (loop.told_to_end) return 0;
        take_rule();
        now = now_ns();
        if (now >= loop.next_ns) (hold_is_active() ? follow_holds : poll_once)(now);
        if (loop.printed) output_read(); /* it belongs to the memory of its time, so a poll that is due comes first */
        if (now_ns() >= output_look_ns()) output_look();
        if (now >= loop.tick_ns) tick(now);
    }
    for (reads = 0; reads < LAST_READS; ++reads) {
        marks_read();
        output_read();
    }
    if (output_look_ns() < NEVER) output_look();
    tree_read();
    if (order->pid) look_closer("end", 3, 0, 1);
    return 1;
}

int loop_was_limited(void) { return loop.limited; }

static int in_order(const void *left, const void *right) {
    i64 one = *(const i64 *)left, other = *(const i64 *)right;
    return one < other ? -1 : one > other;
}

void loop_tell_rest(void) {
    i64 count = min64(periods.count, PERIODS), percent;
    tree_read();
    tell_left_out();
    devices_tell_left_out();
    output_tell_tail();
    qsort(periods.newest, (size_t)count, sizeof *periods.newest, in_order);
    line("periods %l", periods.count);
    for (percent = 0; count && percent <= 100; ++percent) line(" %l", periods.newest[(count - 1) * percent / 100]);
    line("\n");
}

int loop_finish(i64 silence_ns) {
    recording_flush();
    while (recording_waits()) {
        struct pollfd watched[] = {{0, POLLIN, 0}, {1, POLLOUT, 0}};
        char text[4096];
        int ready = wait_for(watched, LENGTH(watched), silence_ns ? silence_ns : -1);
        if (!ready || term_came || (ready > 0 && watched[0].revents && read(0, text, sizeof text) <= 0)) return 0;
        if (ready > 0 && watched[1].revents) recording_flush();
    }
    return !recording_is_broken();
}

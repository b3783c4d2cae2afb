#include "order.h"
#include <stddef.h>

#define READ 65536

enum kind { NUMBER, WORD, WORDS };

#define FACT(name, kind) {#name, kind, offsetof(struct order, name)}

static const struct fact { const char *name; enum kind kind; size_t place; } facts[] = {
    FACT(argv, WORDS), FACT(env, WORDS), FACT(unset, WORDS), FACT(setting, WORDS), FACT(rlimit, WORDS), FACT(file, WORDS),
    FACT(writer, WORDS), FACT(watch, WORDS), FACT(cwd, WORD), {"stdin", WORD, offsetof(struct order, stdin_text)}, FACT(cpus, WORD), FACT(group, WORD),
    FACT(log, WORD), FACT(cache, WORD), FACT(input, NUMBER), FACT(terminal, NUMBER), FACT(pad, NUMBER), FACT(personality, NUMBER),
    FACT(drop, NUMBER), FACT(tree, NUMBER), FACT(swap, NUMBER), FACT(output, NUMBER), FACT(reset, NUMBER), FACT(eager, NUMBER),
    FACT(interval, NUMBER), FACT(size, NUMBER), FACT(hold, NUMBER), FACT(timeout, NUMBER), FACT(grace, NUMBER), FACT(silence, NUMBER),
};

/* The number at *text, which stands behind it and a space then; -1 where there is none. */
static i64 number_at(char **text) {
    const char *rest;
    i64 number = read_int(*text, &rest);
    size_t length = (size_t)(rest - *text);
    if (!length || length > 18 || **text < '0' || (*rest != ' ' && *rest)) return -1;
    *text += length + (*rest == ' ');
    return number;
}

static int take_rule(struct order *order, char *text) {
    struct rule rule = {.interval = number_at(&text), .bytes = 0};
    rule.bytes = number_at(&text);
    rule.hold = number_at(&text);
    while (*text) {
        char *end = text + strcspn(text, " ");
        if (end > text) ADD(&rule.texts, text);
        text = *end ? end + 1 : end;
        *end = 0;
    }
    ADD(&order->rules, rule);
    return rule.interval >= 0 && rule.bytes >= 0 && rule.hold >= 0;
}

/* A fact; 0 where it is not understood. */
static int take_fact(struct order *order, const char *name, char *value) {
    size_t at = 0;
    char *place;
    i64 number;
    if (strcmp(name, "rule") == 0) return take_rule(order, value);
    if (strcmp(name, "attach") == 0) {
        order->pid = number_at(&value);
        order->started = number_at(&value);
        return order->pid > 0 && order->pid <= INT32_MAX && order->started >= 0;
    }
    while (at < LENGTH(facts) && strcmp(facts[at].name, name) != 0) ++at;
    if (at == LENGTH(facts)) return 0;
    place = (char *)order + facts[at].place;
    if (facts[at].kind == WORDS) ADD((struct words *)(void *)place, value);
    if (facts[at].kind == WORD) memcpy(place, &value, sizeof value);
    if (facts[at].kind != NUMBER) return 1;
    number = number_at(&value);
    memcpy(place, &number, sizeof number);
    return number >= 0 && !*value;
}

static void unescape(char *text) {
    char *to = text;
    for (; *text; ++text) {
        char letter = *text;
        if (letter == '\\' && text[1]) letter = *++text == 'n' ? '\n' : *text;
        *to++ = letter;
    }
    *to = 0;
}

/* All that has come up to an empty line, and behind it, after a line's end of its own; NULL where it ends before that. */
static char *read_text(size_t *length, char **end) {
    size_t room = 2 * READ;
    char *text = take_memory(room), *larger;
    for (*text = '\n', *length = 1; (*end = memmem(text, *length, "\n\n", 2)) == NULL;) {
        ssize_t count = read(0, text + *length, READ);
        if (count == 0 || (count < 0 && errno != EINTR)) return NULL;
        *length += (size_t)max64(count, 0);
        if (room - *length >= READ) continue;
        larger = memcpy(take_memory(room *= 2), text, *length);
        free(text);
        text = larger;
    }
    return text;
}

const struct order *order_read(const char **reason, const char **early, size_t *early_length) {
    static struct order order = {.input = -1};
    size_t length;
    char *end, *text = read_text(&length, &end);
    *reason = "it has no end, or a zero in it";
    if (text == NULL || memchr(text, 0, (size_t)(end - text)) != NULL) return NULL;
    *early = end + 2;
    *early_length = length - (size_t)(end + 2 - text);
    while (text < end) {
        char *name = text + 1, *value = name + strcspn(name, " \n");
        text = name + strcspn(name, "\n");
        *text = 0;
        *reason = name;
        if (value == text) return NULL;
        *value++ = 0;
        unescape(value);
        if (!take_fact(&order, name, value)) return NULL;
    }
    if (order.argv.count) ADD(&order.argv, NULL); /* as execve wants it */
    *reason = "neither a program nor a process";
    return order.pid || order.argv.count ? &order : NULL;
}

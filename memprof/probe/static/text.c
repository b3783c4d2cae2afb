/* Text and numbers without stdio: printf, strtod and the long doubles behind them would be a third of the program. */
#include "probe.h"
#include <math.h>

/* Of printf's conversions: %s %.*s %.NUMBERs %c %d %lld %llu %zu and %0NUMBERx. The whole length, as vsnprintf(3) has it. */
size_t vput(char *to, size_t size, const char *format, va_list words) {
    size_t length = 0, at;
    for (; *format; ++format) {
        char digits[24];
        const char *text = digits;
        size_t count = 1, width = 0, limit = SIZE_MAX;
        int number = 0, negative = 0, large = 0, hexadecimal;
        uint64_t magnitude = 0;
        digits[0] = *format;
        if (*format == '%') {
            ++format;
            for (; *format >= '0' && *format <= '9'; ++format) width = width * 10 + (size_t)(*format - '0');
            if (*format == '.' && *++format == '*') limit = (size_t)va_arg(words, int), ++format;
            else if (format[-1] == '.')
                for (limit = 0; *format >= '0' && *format <= '9'; ++format) limit = limit * 10 + (size_t)(*format - '0');
            for (; *format == 'l' || *format == 'z'; ++format) large += *format == 'l' ? 1 : 4;
            hexadecimal = *format == 'x';
            if (*format == 's') {
                text = va_arg(words, const char *);
                for (count = 0; count < limit && text[count]; ++count) {}
            } else if (*format == 'c') {
                digits[0] = (char)va_arg(words, int);
            } else {
                if (*format == 'd') {
                    i64 value = large ? va_arg(words, long long) : va_arg(words, int);
                    negative = value < 0;
                    magnitude = negative ? -(uint64_t)value : (uint64_t)value;
                } else if (large >= 4) {
                    magnitude = va_arg(words, size_t);
                } else {
                    magnitude = large ? va_arg(words, unsigned long long) : va_arg(words, unsigned);
                }
                text = digits + sizeof digits;
                do {
                    number = (int)(magnitude % (hexadecimal ? 16 : 10));
                    *(char *)--text = (char)(number < 10 ? '0' + number : 'a' + number - 10);
                    magnitude /= hexadecimal ? 16 : 10;
                } while (magnitude || (size_t)(digits + sizeof digits - text) < width);
                if (negative) *(char *)--text = '-';
                count = (size_t)(digits + sizeof digits - text);
            }
        }
        for (at = 0; at < count; ++at, ++length)
            if (length + 1 < size) to[length] = text[at];
    }
    if (size) to[length < size ? length : size - 1] = 0;
    return length;
}

size_t put(char *to, size_t size, const char *format, ...) {
    va_list words;
    size_t length;
    va_start(words, format);
    length = vput(to, size, format, words);
    va_end(words);
    return length;
}

/* value / unit, neither below 0, with so many places after the point, as printf's %.f rounds. */
const char *fixed(char text[32], i64 value, i64 unit, int places) {
    i64 scaled = value / unit, rest = value % unit, power = 1;
    int place;
    for (place = 0; place < places; ++place) {
        rest *= 10;
        scaled = scaled * 10 + rest / unit;
        rest %= unit;
        power *= 10;
    }
    if (2 * rest > unit || (2 * rest == unit && scaled & 1)) ++scaled;
    place = (int)put(text, 32, "%lld.", (long long)(scaled / power));
    for (scaled %= power; power > 1; scaled %= power) {
        power /= 10;
        text[place++] = (char)('0' + scaled / power);
    }
    text[place] = 0;
    return text;
}

/* As strtoll(3), where more than 64 bits are cut off. rest may be NULL. */
i64 read_int(const char *text, const char **rest) {
    const char *at = text + strspn(text, " \t"), *begin;
    uint64_t number = 0;
    int negative = *at == '-';
    begin = at += negative;
    for (; *at >= '0' && *at <= '9'; ++at) number = number * 10 + (uint64_t)(*at - '0');
    if (rest != NULL) *rest = at > begin ? at : text;
    return (i64)(negative ? -number : number);
}

/* A number of JSON. Digits beyond the nineteenth are cut off. */
struct decimal decimal_of(const char *text) {
    struct decimal found = {0, 0, 0};
    int fraction = 0;
    if (*text == '-') found.negative = 1, ++text;
    for (; (*text >= '0' && *text <= '9') || *text == '.'; ++text) {
        if (*text == '.') {
            fraction = 1;
        } else if (found.digits < 1000000000000000000u) {
            found.digits = found.digits * 10 + (uint64_t)(*text - '0');
            found.exponent -= fraction;
        } else {
            found.exponent += !fraction;
        }
    }
    if (*text == 'e' || *text == 'E') {
        i64 exponent = read_int(text + 1 + (text[1] == '+'), NULL);
        found.exponent += (int)max64(-100000, min64(100000, exponent));
    }
    return found;
}

/* To within a few units of its last place. */
double decimal_double(struct decimal number) {
    double size = (double)number.digits;
    int at;
    for (at = number.exponent; at > 0 && at < 400 && size > 0; --at) size *= 10;
    if (at >= 400 && size > 0) size = (double)INFINITY;
    for (at = number.exponent; at < 0 && size > 0; ++at) size /= 10;
    return number.negative ? -size : size;
}

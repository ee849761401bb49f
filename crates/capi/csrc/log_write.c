/* The only variadic function of the interface: formatted here in C; src/log_write.rs writes the line and registers its
 * callbacks when the library is loaded. Text longer than the buffer is truncated, and marked as such. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#define HIDDEN __attribute__((visibility("hidden")))

static int (*wanted)(int level);
static void (*line_to)(int level, const char *file, int line, const char *text, size_t size);

HIDDEN void perigee_log_connect(int (*is_wanted)(int), void (*to)(int, const char *, int, const char *, size_t))
{
    wanted = is_wanted;
    line_to = to;
}

HIDDEN void perigee_log_format(int level, const char *file, int line, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    int size;

    if (!format || !wanted || !line_to || !wanted(level)) return;
    va_start(arguments, format);
    size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0) return;
    if ((size_t)size >= sizeof text)
    {
        size = (int)sizeof text - 1;
        text[size - 1] = text[size - 2] = text[size - 3] = '.';
    }
    line_to(level, file, line, text, (size_t)size);
}

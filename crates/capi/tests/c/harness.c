/* Runs each group in a child process, collects the results of the checks, and prints them as text, JSON or markdown.
 * The parent process must not call the library, so that every child starts with an unused library. */
#include "harness.h"

#include <dlfcn.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

library_t library = LIBRARY_PERIGEE;
const char *program_path;

enum
{
    CHECKS_MAX = 4000,
    GROUP_SECONDS_MAX = 240
};

typedef struct
{
    char function[64];
    char behaviour[200];
    char group[24];
    int runs;
    int failures;
    char first[400];
} check_t;

static check_t checks[CHECKS_MAX];
static int check_count;
static FILE *to_parent;
static char base_directory[512];
static char group_directory[600];

/* ---- in the child ---- */

static void put_field(const char *text)
{
    for (; *text; text++) fputc(*text == '\t' || *text == '\n' ? ' ' : *text, to_parent);
}

void check_record(int ok, const char *function, const char *behaviour, const char *file, int line, const char *format,
                  ...)
{
    static pthread_mutex_t one_line = PTHREAD_MUTEX_INITIALIZER;
    char detail[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    const char *slash = strrchr(file, '/');
    pthread_mutex_lock(&one_line);
    fprintf(to_parent, "%d\t", ok);
    put_field(function);
    fputc('\t', to_parent);
    put_field(behaviour);
    fprintf(to_parent, "\t%s:%d: ", slash ? slash + 1 : file, line);
    put_field(ok ? "" : detail);
    fputc('\n', to_parent);
    fflush(to_parent);
    pthread_mutex_unlock(&one_line);
}

const char *fresh_path(void)
{
    static int next;
    static char paths[600][640];
    char *path = paths[next % 600];
    snprintf(path, sizeof paths[0], "%s/%d", group_directory, next++);
    return path;
}

void *exported(const char *name) { return dlsym(RTLD_DEFAULT, name); }

/* ---- in the parent ---- */

static check_t *check_of(const char *group, const char *function, const char *behaviour)
{
    for (int i = 0; i < check_count; i++)
        if (!strcmp(checks[i].function, function) && !strcmp(checks[i].behaviour, behaviour)) return &checks[i];
    if (check_count == CHECKS_MAX) abort();
    check_t *check = &checks[check_count++];
    snprintf(check->function, sizeof check->function, "%s", function);
    snprintf(check->behaviour, sizeof check->behaviour, "%s", behaviour);
    snprintf(check->group, sizeof check->group, "%s", group);
    return check;
}

static void found(const char *group, int ok, const char *function, const char *behaviour, const char *detail)
{
    check_t *check = check_of(group, function, behaviour);
    check->runs++;
    if (!ok && check->failures++ == 0) snprintf(check->first, sizeof check->first, "%s", detail);
}

static const difference_t *difference_of(const check_t *check)
{
    for (const difference_t *d = differences; d->function; d++)
        if (!strcmp(d->function, check->function) && !strcmp(d->behaviour, check->behaviour)) return d;
    return NULL;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

static void read_results(const group_t *group, FILE *from_child)
{
    char line[1200];
    while (fgets(line, sizeof line, from_child))
    {
        line[strcspn(line, "\n")] = 0;
        char *rest = line, *ok = strsep(&rest, "\t"), *function = strsep(&rest, "\t"),
             *behaviour = strsep(&rest, "\t");
        if (rest) found(group->name, *ok == '1', function, behaviour, rest);
    }
}

static void run_group(const group_t *group)
{
    int ends[2];
    if (pipe(ends)) abort();
    snprintf(group_directory, sizeof group_directory, "%s/%s", base_directory, group->name);
    mkdir(group_directory, 0700);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
    {
        close(ends[0]);
        to_parent = fdopen(ends[1], "w");
        alarm(GROUP_SECONDS_MAX);
        group->run();
        fclose(to_parent);
        exit(0);
    }
    close(ends[1]);
    FILE *from_child = fdopen(ends[0], "r");
    read_results(group, from_child);
    fclose(from_child);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) || WEXITSTATUS(status))
    {
        char detail[300];
        check_t *last = check_count ? &checks[check_count - 1] : NULL;
        snprintf(detail, sizeof detail, "%s %d after the check `%s: %s`",
                 WIFSIGNALED(status) ? "died of signal" : "exited with",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), last ? last->function : "none",
                 last ? last->behaviour : "");
        found(group->name, 0, "(group)", group->name, detail);
    }
    nftw(group_directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

typedef struct
{
    int passed, failed, differing, stale, runs;
} totals_t;

static totals_t total(void)
{
    totals_t t = {0};
    for (int i = 0; i < check_count; i++)
    {
        const difference_t *d = library == LIBRARY_TIDESDB ? difference_of(&checks[i]) : NULL;
        t.runs += checks[i].runs;
        if (checks[i].failures == 0) t.passed++, t.stale += d != NULL;
        else if (d) t.differing++;
        else t.failed++;
    }
    return t;
}

static void print_text(void)
{
    for (int i = 0; i < check_count; i++)
    {
        check_t *c = &checks[i];
        const difference_t *d = library == LIBRARY_TIDESDB ? difference_of(c) : NULL;
        if (c->failures && !d) printf("FAILED  %s: %s (%s)\n        %s\n", c->function, c->behaviour, c->group, c->first);
        if (c->failures && d) printf("differs %s: %s\n        %s\n", c->function, c->behaviour, c->first);
        if (!c->failures && d) printf("listed as a difference, but equal: %s: %s\n", c->function, c->behaviour);
    }
    totals_t t = total();
    printf("%d checks (%d assertions): %d passed, %d failed, %d differ as listed\n", check_count, t.runs, t.passed,
           t.failed, t.differing);
}

static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++)
    {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar((unsigned char)*text < 32 ? ' ' : *text);
    }
    putchar('"');
}

static void print_json(void)
{
    printf("[\n");
    for (int i = 0; i < check_count; i++)
    {
        check_t *c = &checks[i];
        printf("  {\"group\": \"%s\", \"function\": \"%s\", \"behaviour\": ", c->group, c->function);
        print_quoted(c->behaviour);
        printf(", \"runs\": %d, \"failures\": %d, \"first\": ", c->runs, c->failures);
        print_quoted(c->failures ? c->first : "");
        printf("}%s\n", i + 1 < check_count ? "," : "");
    }
    printf("]\n");
}

static void print_table(void)
{
    printf("| Function | Documented behaviours checked | Checks | Passed |\n|---|---|---:|---:|\n");
    int all = 0, all_passed = 0, functions = 0;
    for (int i = 0; i < check_count; i++)
    {
        int earlier = 0, n = 0, passed = 0;
        for (int j = 0; j < i; j++) earlier |= !strcmp(checks[j].function, checks[i].function);
        if (earlier) continue;
        printf("| `%s` | ", checks[i].function);
        for (int j = i; j < check_count; j++)
            if (!strcmp(checks[j].function, checks[i].function))
            {
                printf("%s%s", n++ ? "; " : "", checks[j].behaviour);
                passed += checks[j].failures == 0;
            }
        printf(" | %d | %d |\n", n, passed);
        all += n, all_passed += passed, functions++;
    }
    printf("| **%d functions** | | **%d** | **%d** |\n", functions, all, all_passed);
}

static void print_differences(void)
{
    printf("| Function | Behaviour that Perigee has | What TidesDB 9.3.14 does | Why |\n|---|---|---|---|\n");
    for (const difference_t *d = differences; d->function; d++)
        printf("| `%s` | %s | %s | %s |\n", d->function, d->behaviour, d->theirs, d->why);
}

/* Opens and closes the database at `path` and prints the return code: for tests of the lock between processes. */
static int probe(const char *path)
{
    tidesdb_config_t config = quiet_config(path);
    tidesdb_t *db = NULL;
    int rc = tidesdb_open(&config, &db);
    printf("%d\n", rc);
    if (rc == 0) tidesdb_close(db);
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: conformance [--library perigee|tidesdb] [--only GROUP] [--skip GROUP] [--dir DIR]\n"
                    "                   [--json | --table | --differences | --groups]\n");
    return 2;
}

int main(int count, char **arguments)
{
    const char *only = NULL, *skip = NULL, *form = "--text", *parent = getenv("TMPDIR");
    program_path = arguments[0];
    for (int i = 1; i < count; i++)
    {
        const char *a = arguments[i], *value = i + 1 < count ? arguments[i + 1] : NULL;
        if (!strcmp(a, "--json") || !strcmp(a, "--table") || !strcmp(a, "--differences") || !strcmp(a, "--groups"))
            form = a;
        else if (!value) return usage();
        else if (!strcmp(a, "--probe")) return probe(value);
        else if (i++, !strcmp(a, "--only")) only = value;
        else if (!strcmp(a, "--skip")) skip = value;
        else if (!strcmp(a, "--dir")) parent = value;
        else if (!strcmp(a, "--library")) library = !strcmp(value, "tidesdb") ? LIBRARY_TIDESDB : LIBRARY_PERIGEE;
        else return usage();
    }
    if (!strcmp(form, "--differences")) return print_differences(), 0;
    snprintf(base_directory, sizeof base_directory, "%s/conformance-XXXXXX", parent ? parent : "/tmp");
    if (strcmp(form, "--groups") && !mkdtemp(base_directory)) return perror(base_directory), 2;
    int ran = 0;
    for (const group_t *group = groups; group->name; group++)
    {
        if (only && strcmp(only, group->name)) continue;
        if (skip && !strcmp(skip, group->name)) continue;
        if (group->perigee_only && library != LIBRARY_PERIGEE) continue;
        if (!strcmp(form, "--groups")) puts(group->name);
        else run_group(group);
        ran++;
    }
    if (!strcmp(form, "--groups")) return 0;
    rmdir(base_directory);
    if (!ran) return fprintf(stderr, "no such group\n"), 2;
    if (!strcmp(form, "--json")) print_json();
    else if (!strcmp(form, "--table")) print_table();
    else print_text();
    return total().failed != 0;
}

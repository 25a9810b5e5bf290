/* The entry point of the images with Python: starts netinit, and can start nothing else.
 *
 * The path of the interpreter, its flags and that of the script are constants here, so what arrives from outside are netinit's own
 * arguments, and an environment without what loads code from elsewhere.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"
#define SCRIPT "/usr/lib/netinit/netinit/__main__.py"

/* How variables begin with which the C library or Python takes code or data from another place than the image's.
 * PATH is one: netinit looks for programs there first, and without it in the usual folders. */
static const char *const unsafe[] = {
    "GCONV_PATH=", "GETCONF_DIR=", "GLIBC_TUNABLES=", "LD_", "LOCPATH=", "MALLOC_", "NLSPATH=", "PATH=", "PYTHON",
};

extern char **environ;

static void clean_environment(void)
{
    char **kept = environ;

    for (char **each = environ; *each; each++) {
        size_t at = 0;

        while (at < sizeof unsafe / sizeof *unsafe && strncmp(*each, unsafe[at], strlen(unsafe[at])))
            at++;
        if (at == sizeof unsafe / sizeof *unsafe)
            *kept++ = *each;
    }
    *kept = NULL;
}

int main(int argc, char **argv)
{
    char *start[] = {PYTHON, "-I", "-S", SCRIPT};
    size_t count = sizeof start / sizeof *start, given = argc ? (size_t)argc - 1 : 0;
    char **words = calloc(count + given + 1, sizeof *words);

    if (words) {
        memcpy(words, start, sizeof start);
        memcpy(words + count, argv + 1, given * sizeof *words);
        clean_environment();
        execv(PYTHON, words);
    }
    fprintf(stderr, "netinit: " PYTHON " cannot be started: %s\n", strerror(errno));
    return 1;
}

/* The image's entry point: starts netinit, and can start nothing else.
 *
 * A user other than root gets capabilities from the file of the program that a container starts, and in Kubernetes in no
 * other way: it has no ambient ones. This file permits NET_ADMIN and NET_RAW. The interpreter's must not: whoever may start
 * it may run code of his own. The path of the interpreter, its flags and that of the script are constants here, so
 * what arrives from outside are netinit's own arguments, and an environment without what loads code from elsewhere.
 *
 * The kernel holds the rest: a traced process gains nothing, and one without these capabilities may not trace this one.
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"
#define ROOT "/usr/lib/netinit/"
#define ISTIO_NAME "istio-iptables"

/* linux/capability.h, of which musl's compiler has no copy */
#define NET_ADMIN 12
#define NET_RAW 13
#define BIT(number) (UINT32_C(1) << (number))
#define VERSION_3 0x20080522 /* two words of 32 bits for each set */

struct header {
    uint32_t version;
    int pid;
};

struct word {
    uint32_t effective, permitted, inheritable;
};

/* How variables begin with which the C library, Python or iptables takes code or data from another place than the image's.
 * PATH is one: netinit looks for programs there first, and without it in the usual folders. */
static const char *const unsafe[] = {
    "GCONV_PATH=", "GETCONF_DIR=", "GLIBC_TUNABLES=", "IP6TABLES_LIB_DIR=", "IPTABLES_LIB_DIR=", "LD_", "LOCPATH=",
    "MALLOC_", "NLSPATH=", "PATH=", "PYTHON", "XTABLES_LIBDIR=",
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

/* Hands what is permitted to netinit and the programs that it starts, as ambient capabilities (capabilities(7)). NET_RAW
 * serves only beside NET_ADMIN; containers often have it unasked. A refusal is not told: netinit says what it lacks. */
static void pass_capabilities(void)
{
    struct header header = {VERSION_3, 0};
    struct word words[2];

    if (geteuid() == 0 || syscall(SYS_capget, &header, words))
        return; /* root's programs have what the container has */
    uint32_t wanted = words[0].permitted & (BIT(NET_ADMIN) | BIT(NET_RAW));
    if (!(wanted & BIT(NET_ADMIN)))
        return;
    words[0].effective |= wanted;
    words[0].inheritable |= wanted;
    if (syscall(SYS_capset, &header, words))
        return;
    for (unsigned long number = NET_ADMIN; number <= NET_RAW; number++)
        if (wanted & BIT(number))
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0UL, 0UL);
}

int main(int argc, char **argv)
{
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    const char *name = slash ? slash + 1 : argc ? argv[0] : "";
    char *start[] = {PYTHON, "-I", "-S", strcmp(name, ISTIO_NAME) ? ROOT "netinit/__main__.py" : ROOT ISTIO_NAME};
    size_t count = sizeof start / sizeof *start, given = argc ? (size_t)argc - 1 : 0;
    char **words = calloc(count + given + 1, sizeof *words);

    if (words) {
        memcpy(words, start, sizeof start);
        memcpy(words + count, argv + 1, given * sizeof *words);
        clean_environment();
        pass_capabilities();
        execv(PYTHON, words);
    }
    fprintf(stderr, "netinit: " PYTHON " cannot be started: %s\n", strerror(errno));
    return 1;
}

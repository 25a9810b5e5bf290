/* Plays a kernel that lacks extensions, expressions and tables of netfilter, for every program that this library is loaded into.
 *
 * $LACKING names them, between commas: an extension (addrtype), a legacy table (filter), `nfnetlink`. A name with a family's
 * number (REJECT6) is missing for that family of legacy iptables alone.
 * In what a program asks of nf_tables the names are changed to ones that no kernel has, so that the kernel itself refuses them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CONFIGURATION "/run/lacking"
#define NETLINK_NETFILTER 12
#define GET_INFO 64 /* and IPT_SO_SET_REPLACE */

static char names[600];

__attribute__((constructor)) static void load(void) {
    int file = open(CONFIGURATION, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t size = read(file, names, sizeof names - 1);
        names[size > 0 ? size : 0] = 0;
        close(file);
    }
}

static int lacks(const char *name, int level) {
    char both[64], one[64];
    snprintf(both, sizeof both, ",%.29s,", name);
    snprintf(one, sizeof one, ",%.29s%d,", name, level == 41 ? 6 : 4);
    return strstr(names, both) || strstr(names, one);
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
    static int (*next)(int, int, int, void *, socklen_t *);
    if (!next) next = dlsym(RTLD_NEXT, "getsockopt");
    if ((level == 0 || level == 41) && value && option >= GET_INFO && option <= 69 && option != 65 && lacks(value, level)) {
        errno = option == GET_INFO ? ENOENT : EPROTONOSUPPORT;
        return -1;
    }
    return next(fd, level, option, value, size);
}

/* Whether a table's entries have this whole name: chains end alike (ISTIO_REDIRECT, CT). */
static int holds(const char *value, size_t size, const char *name) {
    const char *at = value, *end = value + size;
    while (*name && (at = memmem(at, end - at, name, strlen(name) + 1))) {
        if (at > value && at[-1] != '_' && !(at[-1] >= 'A' && at[-1] <= 'Z') && !(at[-1] >= 'a' && at[-1] <= 'z')) return 1;
        at++;
    }
    return 0;
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t size) {
    static int (*next)(int, int, int, const void *, socklen_t);
    if (!next) next = dlsym(RTLD_NEXT, "setsockopt");
    if ((level == 0 || level == 41) && option == GET_INFO && value) {
        char copy[600], *rest, *name;
        strcpy(copy, names);
        for (name = strtok_r(copy, ",\n", &rest); name; name = strtok_r(0, ",\n", &rest)) {
            size_t length = strlen(name);
            if (name[length - 1] == (level == 41 ? '6' : '4')) name[length - 1] = 0;
            if (holds(value, size, name)) {
                errno = EINVAL; /* as gVisor; Linux says ENOENT */
                return -1;
            }
        }
    }
    return next(fd, level, option, value, size);
}

int socket(int domain, int type, int protocol) {
    static int (*next)(int, int, int);
    if (!next) next = dlsym(RTLD_NEXT, "socket");
    if (domain == AF_NETLINK && protocol == NETLINK_NETFILTER && strstr(names, ",nfnetlink,")) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return next(domain, type, protocol);
}

/* An attribute with exactly this name: its length, its type, the name. */
static void hide(int fd, char *data, size_t size) {
    int domain = 0, protocol = 0;
    socklen_t length = sizeof domain;
    char copy[600], *rest, *name;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) || domain != AF_NETLINK) return;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) || protocol != NETLINK_NETFILTER) return;
    strcpy(copy, names);
    for (name = strtok_r(copy, ",\n", &rest); name; name = strtok_r(0, ",\n", &rest)) {
        size_t whole = strlen(name) + 1, at;
        for (at = 4; at + whole <= size; at++) {
            unsigned short said;
            memcpy(&said, data + at - 4, 2);
            if ((said == whole + 4 || said == whole + 3) && !memcmp(data + at, name, whole)) data[at + whole - 2] = '!';
        }
    }
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    static ssize_t (*next)(int, const void *, size_t, int);
    if (!next) next = dlsym(RTLD_NEXT, "send");
    char *changed = malloc(size);
    memcpy(changed, data, size);
    hide(fd, changed, size);
    ssize_t done = next(fd, changed, size, flags);
    free(changed);
    return done;
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length) {
    static ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    if (!next) next = dlsym(RTLD_NEXT, "sendto");
    char *changed = malloc(size);
    memcpy(changed, data, size);
    hide(fd, changed, size);
    ssize_t done = next(fd, changed, size, flags, to, length);
    free(changed);
    return done;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    static ssize_t (*next)(int, const struct msghdr *, int);
    if (!next) next = dlsym(RTLD_NEXT, "sendmsg");
    struct msghdr own = *message;
    struct iovec parts[64];
    size_t count = message->msg_iovlen, at;
    if (count > 64) return next(fd, message, flags);
    for (at = 0; at < count; at++) {
        parts[at] = message->msg_iov[at];
        parts[at].iov_base = malloc(parts[at].iov_len + 1);
        memcpy(parts[at].iov_base, message->msg_iov[at].iov_base, parts[at].iov_len);
        hide(fd, parts[at].iov_base, parts[at].iov_len);
    }
    own.msg_iov = parts;
    ssize_t done = next(fd, &own, flags);
    for (at = 0; at < count; at++) free(parts[at].iov_base);
    return done;
}

/* The CNI plugin: passes a request of the container runtime to the node's agent, and prints the agent's answer.
 *
 * Runtimes start it for each pod, on hosts that may have nothing but a kernel: it is static, needs no interpreter, and all its memory
 * is declared below. It takes three decisions of its own:
 *
 * - ADD without an agent fails with CNI's error 11, "try again later", so that pods wait and never start uncaptured. DEL succeeds: the
 *   rules are in the pod's namespace and go with it, and a node without an agent must be able to delete pods.
 * - STATUS always succeeds. The runtime reports an error as a network that is not ready, and then no pod starts on the node, the agent's
 *   own included.
 * - Pods that the agent would not capture start without it: the agent's own, those of excluded namespaces, and, where it does not answer,
 *   those of namespaces that it last knew to be outside of the mesh (netinit/node/outside_namespaces.py).
 *
 * What it must know is in SETTINGS beside the executable, NAME=VALUE lines that the installer writes (netinit/node/conflist.py). Of
 * the configuration on stdin, which is JSON, it needs two members: cniVersion, and prevResult to print when a pod starts without the
 * agent. They are cut out as text; the agent parses the JSON.
 *
 * The network namespace is opened here and passed as a descriptor, because the runtime's path need not exist in the agent's container.
 * Where the path leads nowhere, the pod is gone and the agent gets none. Any other failure says nothing about the pod: the agent gets its
 * errno in the variable UNOPENED.
 *
 * Request to the agent: `netinit-cni 1 VARIABLES INPUT MILLISECONDS\n`, then that many bytes of variables (NAME=VALUE, each with a NUL
 * behind) and of input. Answer: `netinit-cni 1 CODE OUTPUT\n` and that many bytes of output. An incomplete answer counts as none: the
 * agent was killed while it wrote.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define GREETING "netinit-cni 1 "
#define SOCKET "/run/netinit/cni.sock"
#define SETTINGS ".settings" /* behind the path of the executable */
#define EACH_OLDER(one) one("0.1.0") one("0.2.0") one("0.3.0") one("0.3.1") one("0.4.0") one("1.0.0")
#define NEWEST "1.1.0"
#define ITEM(text) text,
#define LISTED(text) text ", "
#define MOST_INPUT (1u << 20)
#define MOST_OUTPUT (2u << 20)
#define MOST_VARIABLES (64u << 10)
#define UNOPENED "NETINIT_NETNS_ERRNO="
#define MOST_UNOPENED (sizeof UNOPENED + 24) /* with its number */
#define MOST_SETTINGS (1u << 20) /* 4,000 namespaces with names of the greatest length */
#define MOST_PATH 4096
#define MOST_LABEL 63 /* bytes of a DNS label, as a namespace's name is */
#define POD_SUFFIX 5 /* letters and digits that a DaemonSet puts behind its name and a dash */
#define SECONDS 30 /* for an answer, unless the settings say otherwise */
#define SECONDS_BESIDE 10 /* for verbs that no pod's start waits for, and for the runtime to write the configuration */

/* CNI's errors */
enum { VERSION_ERROR = 1, ENVIRONMENT_ERROR = 4, IO_ERROR = 5, DECODING_ERROR = 6, CONFIGURATION_ERROR = 7, LATER = 11 };

static const char *const versions[] = {EACH_OLDER(ITEM) NEWEST};
static const char *const passed_on[] = {"CNI_COMMAND=", "CNI_CONTAINERID=", "CNI_NETNS=", "CNI_IFNAME=", "CNI_ARGS=", "CNI_PATH="};

struct slice {
    const char *start;
    size_t length;
};

/* Members of the configuration, each with its length 0 where it is absent. */
struct configuration {
    struct slice version, previous;
};

struct settings {
    struct slice socket, pod_namespace, daemon_set, outside; /* the file of namespaces outside of the mesh */
    int64_t seconds;
    bool excluded; /* the pod's namespace is one of those that are left alone */
};

struct reader {
    const char *at, *end;
};

extern char **environ;

static bool equals(struct slice one, const char *other)
{
    return one.length == strlen(other) && !memcmp(one.start, other, one.length);
}

static bool same(struct slice one, struct slice other)
{
    return one.length && one.length == other.length && !memcmp(one.start, other.start, one.length);
}

/* ---- the configuration */

static bool is_blank(char one)
{
    return one == ' ' || one == '\t' || one == '\n' || one == '\r';
}

static struct slice trim(const char *start, const char *end)
{
    while (start < end && is_blank(*start))
        start++;
    while (start < end && is_blank(end[-1]))
        end--;
    return (struct slice){start, (size_t)(end - start)};
}

/* Keeps a member that is known. False where it was there before: readers differ in which of two counts. */
static bool take_member(struct slice name, struct slice value, struct configuration *found)
{
    struct slice *place = equals(name, "\"cniVersion\"") ? &found->version : equals(name, "\"prevResult\"") ? &found->previous : NULL;

    if (!place)
        return true;
    if (place->length || !value.length)
        return false;
    *place = value;
    return true;
}

/* Cuts the members out of an object. Strings and brackets are followed, so that nothing inside of a value can be taken for a member;
 * all else is left to who parses it. */
static bool read_configuration(const char *bytes, size_t length, struct configuration *found)
{
    struct slice whole = trim(bytes, bytes + length), name = {NULL, 0};
    const char *end = whole.start + whole.length, *start = whole.start + 1;
    size_t depth = 0;
    bool quoted = false;

    memset(found, 0, sizeof *found);
    if (whole.length < 2 || *whole.start != '{')
        return false;
    for (const char *at = whole.start; at < end; at++) {
        if (quoted) {
            if (*at == '\\')
                at++;
            else
                quoted = *at != '"';
            continue;
        }
        bool opens = *at == '{' || *at == '[', closes = *at == '}' || *at == ']';

        if (*at == '"')
            quoted = true;
        else if (opens)
            depth++;
        else if (depth == 1 && *at == ':' && !name.length) {
            name = trim(start, at);
            start = at + 1;
        } else if (depth == 1 && (*at == ',' || closes)) {
            if (!take_member(name, trim(start, at), found))
                return false;
            name.length = 0;
            start = at + 1;
        }
        if (closes && !--depth)
            return at == end - 1 && *at == '}';
    }
    return false;
}

/* ---- output */

static bool write_all(int descriptor, const char *bytes, size_t length)
{
    while (length) {
        ssize_t done = write(descriptor, bytes, length);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        bytes += done;
        length -= (size_t)done;
    }
    return true;
}

static bool print(const char *text)
{
    return write_all(STDOUT_FILENO, text, strlen(text));
}

static size_t write_number(char *to, size_t number)
{
    char digits[24];
    size_t count = 0, length = 0;

    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        to[length++] = digits[--count];
    return length;
}

static const char *version_of(const struct configuration *configuration)
{
    struct slice text = configuration->version;

    if (text.length < 2 || *text.start != '"')
        return NULL;
    struct slice inner = {text.start + 1, text.length - 2};
    for (size_t at = 0; at < sizeof versions / sizeof *versions; at++)
        if (equals(inner, versions[at]))
            return versions[at];
    return NULL;
}

/* Prints an error as CNI has it, of a constant text. Returns the exit code. */
static int fail(const struct configuration *configuration, size_t code, const char *message)
{
    char digits[24];
    const char *version = configuration ? version_of(configuration) : NULL;

    digits[write_number(digits, code)] = 0;
    if (print("{\"cniVersion\":\"") && print(version ? version : NEWEST) && print("\",\"code\":") && print(digits) &&
        print(",\"msg\":\"netinit: ") && print(message))
        print("\"}\n");
    return 1;
}

static int print_versions(const struct configuration *configuration)
{
    const char *version = version_of(configuration);
    bool good = print("{\"cniVersion\":\"") && print(version ? version : NEWEST) && print("\",\"supportedVersions\":[");

    for (size_t at = 0; good && at < sizeof versions / sizeof *versions; at++)
        good = print(at ? ",\"" : "\"") && print(versions[at]) && print("\"");
    return good && print("]}\n") ? 0 : 1;
}

/* ADD of a pod that starts without the agent: the result of the plugin before, or an empty one. */
static int print_previous(const struct configuration *configuration)
{
    const struct slice *previous = &configuration->previous;

    if (previous->length && *previous->start == '{')
        return write_all(STDOUT_FILENO, previous->start, previous->length) && print("\n") ? 0 : 1;
    return print("{\"cniVersion\":\"") && print(version_of(configuration)) && print("\"}\n") ? 0 : 1;
}

/* ---- the environment */

static const char *variable(const char *name)
{
    size_t length = strlen(name);

    for (char **each = environ; *each; each++)
        if (!strncmp(*each, name, length))
            return *each + length;
    return NULL;
}

/* The value of a key of CNI_ARGS, K=V;K=V. */
static struct slice argument(const char *key)
{
    struct slice found = {NULL, 0};
    size_t length = strlen(key);

    for (const char *at = variable("CNI_ARGS="); at && *at;) {
        size_t whole = strcspn(at, ";");

        if (whole > length && at[length] == '=' && !memcmp(at, key, length))
            found = (struct slice){at + length + 1, whole - length - 1};
        at += whole + (at[whole] == ';');
    }
    return found;
}

/* ---- the settings */

static bool take_number(struct slice text, int64_t *found)
{
    *found = 0;
    for (size_t at = 0; at < text.length; at++) {
        if (text.start[at] < '0' || text.start[at] > '9' || at == 9)
            return false;
        *found = *found * 10 + (text.start[at] - '0');
    }
    return text.length > 0;
}

static bool take_setting(struct slice name, struct slice value, struct slice pod_namespace, struct settings *found)
{
    if (equals(name, "socket"))
        found->socket = value;
    else if (equals(name, "namespace"))
        found->pod_namespace = value;
    else if (equals(name, "daemon-set"))
        found->daemon_set = value;
    else if (equals(name, "outside-namespaces"))
        found->outside = value;
    else if (equals(name, "exclude-namespace"))
        found->excluded |= same(value, pod_namespace);
    else if (equals(name, "seconds"))
        return take_number(value, &found->seconds) && found->seconds > 0;
    return true; /* a name of a newer release */
}

/* Reads a file whole, and returns its length; -1 where it cannot be read or is as long as the buffer. */
static ssize_t read_whole(int file, char *bytes, size_t most)
{
    size_t length = 0;
    ssize_t done = 1;

    for (; done && length < most; length += (size_t)done)
        if ((done = read(file, bytes + length, most - length)) < 0)
            return -1;
    return length == most ? -1 : (ssize_t)length;
}

/* Reads the settings beside the executable; without a file the defaults count. False where it cannot be read. */
static bool read_settings(struct settings *found)
{
    static char path[MOST_PATH + sizeof SETTINGS], bytes[MOST_SETTINGS];
    struct slice pod_namespace = argument("K8S_POD_NAMESPACE");
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof SETTINGS);

    *found = (struct settings){.socket = {SOCKET, sizeof SOCKET - 1}, .seconds = SECONDS};
    if (length <= 0)
        return false;
    memcpy(path + length, SETTINGS, sizeof SETTINGS);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return errno == ENOENT;
    if ((length = read_whole(file, bytes, sizeof bytes)) < 0)
        return false;
    for (const char *at = bytes, *end = bytes + length; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *equal = newline ? memchr(at, '=', (size_t)(newline - at)) : NULL;

        if (!equal || !take_setting((struct slice){at, (size_t)(equal - at)}, (struct slice){equal + 1, (size_t)(newline - equal - 1)}, pod_namespace, found))
            return false;
        at = newline + 1;
    }
    return true;
}

/* Whether the pod is one of the agent's: NAME-xxxxx in the agent's namespace. */
static bool is_own_pod(const struct settings *settings)
{
    struct slice name = argument("K8S_POD_NAME"), wanted = settings->daemon_set;

    if (!wanted.length || !same(argument("K8S_POD_NAMESPACE"), settings->pod_namespace))
        return false;
    if (name.length != wanted.length + 1 + POD_SUFFIX || memcmp(name.start, wanted.start, wanted.length) || name.start[wanted.length] != '-')
        return false;
    for (size_t at = wanted.length + 1; at < name.length; at++)
        if (!((name.start[at] >= 'a' && name.start[at] <= 'z') || (name.start[at] >= '0' && name.start[at] <= '9')))
            return false;
    return true;
}

static bool is_label(struct slice text)
{
    for (size_t at = 0; at < text.length; at++)
        if (!((text.start[at] >= 'a' && text.start[at] <= 'z') || (text.start[at] >= '0' && text.start[at] <= '9') || text.start[at] == '-'))
            return false;
    return text.length && text.length <= MOST_LABEL;
}

/* Whether the pod's namespace is in the agent's list of those outside of the mesh. A list counts only if no user but the one that runs this
 * (root) can write it, and if every line of it is a name. */
static bool is_outside(struct slice list)
{
    static char path[MOST_PATH], bytes[MOST_SETTINGS];
    struct slice pod_namespace = argument("K8S_POD_NAMESPACE");
    struct stat status;
    bool found = false;

    if (!list.length || list.length >= sizeof path)
        return false;
    memcpy(path, list.start, list.length);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (file < 0 || fstat(file, &status) || !S_ISREG(status.st_mode) || status.st_uid != geteuid() || status.st_mode & (S_IWGRP | S_IWOTH))
        return false;
    ssize_t length = read_whole(file, bytes, sizeof bytes);
    if (length < 0)
        return false;
    for (const char *at = bytes, *end = bytes + length; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        struct slice name = {at, newline ? (size_t)(newline - at) : 0};

        if (!is_label(name))
            return false;
        found |= same(name, pod_namespace);
        at = newline + 1;
    }
    return found;
}

/* ---- the agent */

static int64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Whether the descriptor is ready before the deadline. */
static bool await(int descriptor, short events, int64_t deadline)
{
    for (;;) {
        struct pollfd poller = {descriptor, events, 0};
        int64_t left = deadline - now();
        int ready = poll(&poller, 1, left > 0 ? (int)left : 0);

        if (ready > 0)
            return true;
        if (!ready || errno != EINTR)
            return false;
    }
}

static int dial(struct slice path, int64_t deadline)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (descriptor < 0)
        return -1;
    if (path.length >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path.start, path.length);
    while (connect(descriptor, (struct sockaddr *)&address, sizeof address)) {
        if (errno != EAGAIN && errno != EINTR) /* EAGAIN: so many wait that the queue is full */
            return -1;
        if (now() >= deadline)
            return -1;
        poll(NULL, 0, 5);
    }
    return descriptor;
}

static bool send_all(int to, const char *bytes, size_t length, int with, int64_t deadline)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;

    while (length) {
        struct iovec part = {(void *)(uintptr_t)bytes, length};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

        if (with >= 0) {
            memset(&control, 0, sizeof control);
            message.msg_control = control.bytes;
            message.msg_controllen = sizeof control.bytes;
            struct cmsghdr *first = CMSG_FIRSTHDR(&message);
            first->cmsg_level = SOL_SOCKET;
            first->cmsg_type = SCM_RIGHTS;
            first->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(first), &with, sizeof with);
        }
        ssize_t done = sendmsg(to, &message, MSG_NOSIGNAL);
        if (done < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!await(to, POLLOUT, deadline))
                return false;
            continue;
        }
        if (done <= 0)
            return false;
        with = -1;
        bytes += done;
        length -= (size_t)done;
    }
    return true;
}

static size_t receive_all(int from, char *bytes, size_t most, int64_t deadline)
{
    size_t length = 0;

    while (length < most) {
        ssize_t done = recv(from, bytes + length, most - length, 0);

        if (done < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!await(from, POLLIN, deadline))
                return 0;
            continue;
        }
        if (done <= 0)
            return done ? 0 : length;
        length += (size_t)done;
    }
    return length;
}

/* Takes a number and the byte behind it. */
static bool take_count(struct reader *in, size_t *found, char behind)
{
    const char *last = memchr(in->at, behind, (size_t)(in->end - in->at));
    int64_t number;

    if (!last || !take_number((struct slice){in->at, (size_t)(last - in->at)}, &number))
        return false;
    *found = (size_t)number;
    in->at = last + 1;
    return true;
}

/* The variables that are sent to the agent; 0 where they are too long. */
static size_t gather_variables(char *to, size_t most)
{
    size_t length = 0;

    for (size_t at = 0; at < sizeof passed_on / sizeof *passed_on; at++) {
        const char *value = variable(passed_on[at]);
        size_t name = strlen(passed_on[at]), rest = value ? strlen(value) + 1 : 0;

        if (!value)
            continue;
        if (name + rest > most - length)
            return 0;
        memcpy(to + length, passed_on[at], name);
        memcpy(to + length + name, value, rest);
        length += name + rest;
    }
    return length;
}

/* Opens the pod's network namespace; -1 where there is none, with the variable for the agent behind the others if that has another reason. */
static int open_namespace(char *variables, size_t *length)
{
    const char *path = variable("CNI_NETNS=");

    if (!path || !*path)
        return -1;
    /* O_NONBLOCK: a FIFO in its place must not block. */
    int found = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (found >= 0 || (*path == '/' && (errno == ENOENT || errno == ENOTDIR)))
        return found;
    memcpy(variables + *length, UNOPENED, sizeof UNOPENED - 1);
    *length += sizeof UNOPENED - 1;
    *length += write_number(variables + *length, (size_t)errno);
    variables[(*length)++] = 0;
    return -1;
}

static size_t write_head(char *to, size_t variables, size_t input, size_t milliseconds)
{
    size_t numbers[] = {variables, input, milliseconds}, length = sizeof GREETING - 1;

    memcpy(to, GREETING, length);
    for (size_t at = 0; at < 3; at++) {
        length += write_number(to + length, numbers[at]);
        to[length++] = at < 2 ? ' ' : '\n';
    }
    return length;
}

/* The agent's answer, printed; -1 where there is none. */
static int ask(struct slice path, const char *input, size_t length, int64_t deadline)
{
    static char variables[MOST_VARIABLES], answer[MOST_OUTPUT + 64];
    char head[128];
    size_t count = gather_variables(variables, sizeof variables - MOST_UNOPENED), code, size;
    int agent = dial(path, deadline);
    int64_t left = deadline - now();

    if (agent < 0 || left <= 0)
        return -1;
    int namespace = open_namespace(variables, &count);
    if (!send_all(agent, head, write_head(head, count, length, (size_t)left), namespace, deadline) ||
        !send_all(agent, variables, count, -1, deadline) || !send_all(agent, input, length, -1, deadline))
        return -1;
    struct reader in = {answer + sizeof GREETING - 1, answer + receive_all(agent, answer, sizeof answer, deadline)};
    if (in.at > in.end || memcmp(answer, GREETING, sizeof GREETING - 1) || !take_count(&in, &code, ' ') || !take_count(&in, &size, '\n') ||
        size != (size_t)(in.end - in.at) || code > 125)
        return -1;
    return write_all(STDOUT_FILENO, in.at, size) ? (int)code : 1;
}

/* ---- the plugin */

static bool read_input(char *to, size_t most, size_t *length, int64_t deadline)
{
    *length = 0;
    while (*length < most) {
        if (!await(STDIN_FILENO, POLLIN, deadline))
            return false;
        ssize_t done = read(STDIN_FILENO, to + *length, most - *length);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return !done;
        *length += (size_t)done;
    }
    return true;
}

/* The verb, once the configuration is known to be one. */
static int serve(const char *verb, const struct configuration *configuration, const char *input, size_t length)
{
    bool add = !strcmp(verb, "ADD"), deletion = !strcmp(verb, "DEL"), check = !strcmp(verb, "CHECK");
    static char variables[MOST_VARIABLES];
    struct settings settings;

    if (!strcmp(verb, "STATUS"))
        return 0;
    if (!add && !deletion && !check && strcmp(verb, "GC"))
        return fail(configuration, ENVIRONMENT_ERROR, "CNI_COMMAND is none of ADD, DEL, CHECK, GC, STATUS and VERSION");
    if (!gather_variables(variables, sizeof variables - MOST_UNOPENED))
        return fail(configuration, ENVIRONMENT_ERROR, "the variables of CNI are longer than 64 kB");
    if (!read_settings(&settings))
        return deletion ? 0 : fail(configuration, CONFIGURATION_ERROR, "netinit-cni" SETTINGS " beside the executable cannot be read; the agent writes it");
    if (((add || check) && settings.excluded) || is_own_pod(&settings))
        return add ? print_previous(configuration) : 0;
    if (!add && !check && settings.seconds > SECONDS_BESIDE)
        settings.seconds = SECONDS_BESIDE;
    int code = ask(settings.socket, input, length, now() + settings.seconds * 1000);
    if (code >= 0)
        return code;
    if (deletion)
        return 0;
    if ((add || check) && is_outside(settings.outside))
        return add ? print_previous(configuration) : 0;
    return fail(configuration, LATER, "the node's agent does not answer, so this pod waits; see the agent's pod on this node: kubectl get pods -A -o wide -l app.kubernetes.io/name=netinit-node; if it was uninstalled, install it again or run on the node: netinit node uninstall");
}

int main(void)
{
    static char input[MOST_INPUT + 1];
    struct configuration configuration;
    const char *verb = variable("CNI_COMMAND=");
    size_t length;

    signal(SIGPIPE, SIG_IGN);
    if (!verb || !*verb)
        return fail(NULL, ENVIRONMENT_ERROR, "CNI_COMMAND is not set; a container runtime starts this program");
    bool deletion = !strcmp(verb, "DEL"); /* never fails: a pod that cannot be deleted blocks its node */
    if (!read_input(input, sizeof input, &length, now() + SECONDS_BESIDE * 1000))
        return deletion ? 0 : fail(NULL, IO_ERROR, "the configuration cannot be read from stdin, or stdin stays open");
    if (length > MOST_INPUT)
        return deletion ? 0 : fail(NULL, CONFIGURATION_ERROR, "the configuration is longer than 1 MiB");
    if (!read_configuration(input, length, &configuration))
        return deletion ? 0 : fail(NULL, DECODING_ERROR, "the configuration on stdin is not an object of JSON with each member once");
    if (!strcmp(verb, "VERSION"))
        return print_versions(&configuration);
    if (!version_of(&configuration))
        return deletion ? 0 : fail(NULL, VERSION_ERROR, configuration.version.length ? "cniVersion must be one of " EACH_OLDER(LISTED) NEWEST
                                                                                     : "the configuration has no cniVersion");
    return serve(verb, &configuration, input, length);
}

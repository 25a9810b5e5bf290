/* The CNI plugin: hands what the runtime gave it to the node's agent, and prints what the agent answers.
 *
 * Runtimes start it for each pod, on hosts that may have nothing but a kernel: it needs no library, no interpreter and no
 * file but the agent's socket, and takes no memory but what stands below. It decides nothing, with two exceptions:
 *
 * - Without an agent ADD fails with CNI's error 11, "try again later", so that pods wait and never start uncaptured. DEL
 *   succeeds: the rules are in the pod's namespace and go with it, and a node without an agent must be able to end pods.
 * - The agent's own pod is let through, else no agent could ever start. It is known by the namespace and by the name that
 *   its DaemonSet gives it, both of the configuration: this alone is why JSON is read here, and it is read by its grammar.
 *   A search for `"pod_namespace":"` would be shorter and could be led astray by whoever writes a part of that text.
 *
 * The network namespace is opened here and handed over as a descriptor: the path that the runtime has need not mean
 * anything in the agent's container.
 *
 * To the agent: `netinit-cni 1 VARIABLES INPUT MILLISECONDS\n`, so many bytes of variables, each NAME=VALUE with a NUL
 * behind, and so many of input. Back: `netinit-cni 1 CODE OUTPUT\n` and so many bytes of output. An answer that is not
 * whole is none: an agent that was killed while it wrote has not answered.
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
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define GREETING "netinit-cni 1 "
#define SOCKET "/run/netinit/cni.sock"
#define NEWEST "1.1.0"
#define MOST_INPUT (1u << 20)
#define MOST_OUTPUT (2u << 20)
#define MOST_VARIABLES (64u << 10)
#define MOST_TEXT 253 /* bytes of a value that is compared: a DNS name */
#define DEEPEST 100
#define POD_SUFFIX 5 /* letters and digits that a DaemonSet puts behind its name and a dash */
#define SECONDS 30
#define SECONDS_BESIDE 10 /* of whatever nobody's start waits for */

/* CNI's errors */
enum { VERSION_ERROR = 1, ENVIRONMENT_ERROR = 4, IO_ERROR = 5, DECODING_ERROR = 6, CONFIGURATION_ERROR = 7, LATER = 11, NOT_READY = 50 };

static const char *const versions[] = {"0.3.1", "0.4.0", "1.0.0", NEWEST};
static const char *const passed_on[] = {"CNI_COMMAND=", "CNI_CONTAINERID=", "CNI_NETNS=", "CNI_IFNAME=", "CNI_ARGS=", "CNI_PATH="};

struct slice {
    const char *start;
    size_t length;
};

struct text {
    char bytes[MOST_TEXT + 1];
    size_t length;
    bool given;
};

/* What of the configuration is understood here; the agent reads the rest. */
struct configuration {
    struct text version, socket, pod_namespace, daemon_set;
    struct slice seconds, previous;
};

struct reader {
    const char *at, *end;
    int depth;
};

extern char **environ;

/* ---- JSON (RFC 8259) */

static void skip_blanks(struct reader *in)
{
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\t' || *in->at == '\n' || *in->at == '\r'))
        in->at++;
}

static bool take(struct reader *in, char wanted)
{
    if (in->at == in->end || *in->at != wanted)
        return false;
    in->at++;
    return true;
}

static bool take_word(struct reader *in, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(in->end - in->at) < length || memcmp(in->at, word, length))
        return false;
    in->at += length;
    return true;
}

/* What is longer than a text can be is no value that anything here is equal to: such a text counts as not given. */
static void append(struct text *to, unsigned char byte)
{
    if (!to)
        return;
    if (to->length == MOST_TEXT || !byte)
        to->given = false;
    else
        to->bytes[to->length++] = (char)byte;
}

static void append_rune(struct text *to, uint32_t rune)
{
    if (rune < 0x80) {
        append(to, (unsigned char)rune);
        return;
    }
    if (rune < 0x800) {
        append(to, (unsigned char)(0xC0 | rune >> 6));
    } else {
        if (rune < 0x10000) {
            append(to, (unsigned char)(0xE0 | rune >> 12));
        } else {
            append(to, (unsigned char)(0xF0 | rune >> 18));
            append(to, (unsigned char)(0x80 | (rune >> 12 & 0x3F)));
        }
        append(to, (unsigned char)(0x80 | (rune >> 6 & 0x3F)));
    }
    append(to, (unsigned char)(0x80 | (rune & 0x3F)));
}

static bool take_four_digits(struct reader *in, uint32_t *found)
{
    static const char digits[] = "0123456789abcdefABCDEF";

    *found = 0;
    for (int count = 0; count < 4; count++) {
        if (in->at == in->end)
            return false;
        char byte = *in->at++;
        const char *place = byte ? strchr(digits, byte) : NULL;

        if (!place)
            return false;
        uint32_t digit = (uint32_t)(place - digits);
        *found = *found << 4 | (digit < 16 ? digit : digit - 6);
    }
    return true;
}

/* Behind `\u`. Half of a pair alone is U+FFFD, as Go reads it. */
static bool take_rune(struct reader *in, struct text *to)
{
    uint32_t rune, low;

    if (!take_four_digits(in, &rune))
        return false;
    if (rune >= 0xD800 && rune < 0xDC00) {
        struct reader behind = *in;

        if (take_word(&behind, "\\u") && take_four_digits(&behind, &low) && low >= 0xDC00 && low < 0xE000) {
            *in = behind;
            append_rune(to, 0x10000 + ((rune - 0xD800) << 10) + (low - 0xDC00));
            return true;
        }
    }
    append_rune(to, rune >= 0xD800 && rune < 0xE000 ? 0xFFFD : rune);
    return true;
}

/* A string, decoded into `to` where that is not NULL. */
static bool take_string(struct reader *in, struct text *to)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";

    if (!take(in, '"'))
        return false;
    if (to) {
        to->length = 0;
        to->given = true;
    }
    while (in->at < in->end) {
        unsigned char byte = (unsigned char)*in->at++;

        if (byte == '"')
            return true;
        if (byte < 0x20)
            return false;
        if (byte != '\\') {
            append(to, byte);
            continue;
        }
        if (in->at == in->end)
            return false;
        char escape = *in->at++;
        const char *place = escape ? strchr(escapes, escape) : NULL;
        if (place)
            append(to, (unsigned char)meant[place - escapes]);
        else if (escape != 'u' || !take_rune(in, to))
            return false;
    }
    return false;
}

static bool take_digits(struct reader *in)
{
    const char *start = in->at;

    while (in->at < in->end && *in->at >= '0' && *in->at <= '9')
        in->at++;
    return in->at > start;
}

static bool take_number(struct reader *in)
{
    take(in, '-');
    if (!take(in, '0') && !take_digits(in))
        return false;
    if (take(in, '.') && !take_digits(in))
        return false;
    if (take(in, 'e') || take(in, 'E')) {
        if (!take(in, '+'))
            take(in, '-');
        return take_digits(in);
    }
    return true;
}

static bool take_value(struct reader *in);

static bool take_array(struct reader *in)
{
    skip_blanks(in);
    if (take(in, ']'))
        return true;
    do {
        if (!take_value(in))
            return false;
    } while (take(in, ','));
    return take(in, ']');
}

static bool take_object(struct reader *in)
{
    skip_blanks(in);
    if (take(in, '}'))
        return true;
    do {
        skip_blanks(in);
        if (!take_string(in, NULL))
            return false;
        skip_blanks(in);
        if (!take(in, ':') || !take_value(in))
            return false;
    } while (take(in, ','));
    return take(in, '}');
}

/* Any value, and the blanks around it. */
static bool take_value(struct reader *in)
{
    bool good = false;

    if (++in->depth > DEEPEST)
        return false;
    skip_blanks(in);
    if (in->at < in->end)
        switch (*in->at) {
        case '{':
            in->at++;
            good = take_object(in);
            break;
        case '[':
            in->at++;
            good = take_array(in);
            break;
        case '"':
            good = take_string(in, NULL);
            break;
        case 't':
            good = take_word(in, "true");
            break;
        case 'f':
            good = take_word(in, "false");
            break;
        case 'n':
            good = take_word(in, "null");
            break;
        default:
            good = take_number(in);
        }
    skip_blanks(in);
    in->depth--;
    return good;
}

static bool equals(const struct text *one, const char *other)
{
    return one->given && one->length == strlen(other) && !memcmp(one->bytes, other, one->length);
}

/* A member of the configuration; of two with one name the last counts, as in Go. */
static bool take_member(struct reader *in, struct configuration *found)
{
    struct text name = {0};
    struct {
        const char *name;
        struct text *text;
        struct slice *slice;
    } known[] = {
        {"cniVersion", &found->version, NULL},      {"socket", &found->socket, NULL},
        {"pod_namespace", &found->pod_namespace, NULL}, {"daemon_set", &found->daemon_set, NULL},
        {"timeout_seconds", NULL, &found->seconds}, {"prevResult", NULL, &found->previous},
    };

    skip_blanks(in);
    if (!take_string(in, &name))
        return false;
    skip_blanks(in);
    if (!take(in, ':'))
        return false;
    skip_blanks(in);
    for (size_t at = 0; at < sizeof known / sizeof *known; at++) {
        if (!equals(&name, known[at].name))
            continue;
        struct slice value = {in->at, 0};

        if (known[at].text) {
            known[at].text->given = false;
            if (in->at < in->end && *in->at == '"') {
                bool good = take_string(in, known[at].text);

                skip_blanks(in);
                return good;
            }
        }
        if (!take_value(in))
            return false;
        value.length = (size_t)(in->at - value.start);
        if (known[at].slice)
            *known[at].slice = value;
        return true;
    }
    return take_value(in);
}

static bool read_configuration(const char *bytes, size_t length, struct configuration *found)
{
    struct reader in = {bytes, bytes + length, 1};

    memset(found, 0, sizeof *found);
    skip_blanks(&in);
    if (!take(&in, '{'))
        return false;
    skip_blanks(&in);
    if (!take(&in, '}')) {
        do {
            if (!take_member(&in, found))
                return false;
        } while (take(&in, ','));
        if (!take(&in, '}'))
            return false;
    }
    skip_blanks(&in);
    return in.at == in.end;
}

/* ---- what is said */

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
    for (size_t at = 0; at < sizeof versions / sizeof *versions; at++)
        if (equals(&configuration->version, versions[at]))
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

/* ADD of a pod that is let through: what the plugin before has answered, or an empty result. */
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

static bool is_own_pod(const struct configuration *configuration)
{
    const struct text *wanted = &configuration->pod_namespace, *daemon_set = &configuration->daemon_set;
    struct slice namespace = argument("K8S_POD_NAMESPACE"), name = argument("K8S_POD_NAME");

    if (!wanted->given || !wanted->length || !daemon_set->given || !daemon_set->length)
        return false;
    if (namespace.length != wanted->length || memcmp(namespace.start, wanted->bytes, wanted->length))
        return false;
    if (name.length != daemon_set->length + 1 + POD_SUFFIX || memcmp(name.start, daemon_set->bytes, daemon_set->length))
        return false;
    if (name.start[daemon_set->length] != '-')
        return false;
    for (size_t at = daemon_set->length + 1; at < name.length; at++)
        if (!((name.start[at] >= 'a' && name.start[at] <= 'z') || (name.start[at] >= '0' && name.start[at] <= '9')))
            return false;
    return true;
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

static int dial(const char *path, int64_t deadline)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (descriptor < 0)
        return -1;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
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

static bool take_count(struct reader *in, size_t *found, char behind)
{
    const char *start = in->at;

    *found = 0;
    while (in->at < in->end && *in->at >= '0' && *in->at <= '9' && in->at - start < 9)
        *found = *found * 10 + (size_t)(*in->at++ - '0');
    return in->at > start && take(in, behind);
}

/* The variables that the agent is told; 0 where they are too long. */
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
static int ask(const char *path, const char *input, size_t length, int64_t deadline)
{
    static char variables[MOST_VARIABLES], answer[MOST_OUTPUT + 64];
    char head[128];
    size_t count = gather_variables(variables, sizeof variables), code, size;
    const char *netns = variable("CNI_NETNS=");
    int agent = dial(path, deadline);
    int64_t left = deadline - now();

    if (agent < 0 || left <= 0)
        return -1;
    /* O_NONBLOCK: a FIFO in its place must hold up nobody. Where it is gone the agent gets none, and says so. */
    int namespace = netns && *netns ? open(netns, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    if (!send_all(agent, head, write_head(head, count, length, (size_t)left), namespace, deadline) ||
        !send_all(agent, variables, count, -1, deadline) || !send_all(agent, input, length, -1, deadline))
        return -1;
    struct reader in = {answer, answer + receive_all(agent, answer, sizeof answer, deadline), 0};
    if (!take_word(&in, GREETING) || !take_count(&in, &code, ' ') || !take_count(&in, &size, '\n') ||
        size != (size_t)(in.end - in.at) || code > 125)
        return -1;
    return write_all(STDOUT_FILENO, in.at, size) ? (int)code : 1;
}

/* ---- the plugin */

static bool read_input(char *to, size_t most, size_t *length)
{
    *length = 0;
    while (*length < most) {
        ssize_t done = read(STDIN_FILENO, to + *length, most - *length);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return !done;
        *length += (size_t)done;
    }
    return true;
}

static int64_t seconds_of(const struct configuration *configuration)
{
    struct reader in = {configuration->seconds.start, configuration->seconds.start + configuration->seconds.length, 0};
    int64_t found = 0;

    while (configuration->seconds.length && in.at < in.end && *in.at >= '0' && *in.at <= '9' && found < 1000)
        found = found * 10 + (*in.at++ - '0');
    return found > 0 && found <= 600 ? found : SECONDS;
}

/* The verb, once the configuration is known to be one. */
static int serve(const char *verb, const struct configuration *configuration, const char *input, size_t length)
{
    bool add = !strcmp(verb, "ADD"), deletion = !strcmp(verb, "DEL"), check = !strcmp(verb, "CHECK");
    bool status = !strcmp(verb, "STATUS");
    static char variables[MOST_VARIABLES];

    if (!add && !deletion && !check && !status && strcmp(verb, "GC"))
        return fail(configuration, ENVIRONMENT_ERROR, "CNI_COMMAND is none of ADD, DEL, CHECK, GC, STATUS and VERSION");
    if (!gather_variables(variables, sizeof variables))
        return fail(configuration, ENVIRONMENT_ERROR, "the variables of CNI are longer than 64 kB");
    if ((add || deletion || check) && is_own_pod(configuration))
        return add ? print_previous(configuration) : 0;
    const char *path = configuration->socket.given ? configuration->socket.bytes : SOCKET;
    int64_t seconds = seconds_of(configuration);
    if (!add && !check && seconds > SECONDS_BESIDE)
        seconds = SECONDS_BESIDE;
    errno = 0;
    int code = ask(path, input, length, now() + seconds * 1000);
    if (code >= 0)
        return code;
    if (deletion)
        return 0;
    return fail(configuration, status ? NOT_READY : LATER, "the node's agent does not answer, so no pod is programmed; see its DaemonSet");
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
    if (!read_input(input, sizeof input, &length))
        return fail(NULL, IO_ERROR, "the configuration cannot be read from stdin");
    if (length > MOST_INPUT)
        return fail(NULL, CONFIGURATION_ERROR, "the configuration is longer than 1 MiB");
    if (!read_configuration(input, length, &configuration))
        return fail(NULL, DECODING_ERROR, "the configuration on stdin is not JSON of an object");
    if (!strcmp(verb, "VERSION"))
        return print_versions(&configuration);
    if (!version_of(&configuration))
        return fail(NULL, VERSION_ERROR, "cniVersion must be one of 0.3.1, 0.4.0, 1.0.0 and 1.1.0");
    return serve(verb, &configuration, input, length);
}

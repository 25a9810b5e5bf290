/* The plugin's reader of JSON, for tests: cases come on stdin, each its length (four bytes, little end first) and its bytes;
 * for each a line goes out: `-`, or what was understood, in hexadecimal. */

#define main plugin_main
#include "../../netinit/node/plugin.c"
#undef main

#include <stdio.h>
#include <stdlib.h>

static void show(const struct text *text)
{
    if (!text->given)
        putchar('-');
    else
        putchar('=');
    for (size_t at = 0; text->given && at < text->length; at++)
        printf("%02x", (unsigned char)text->bytes[at]);
    putchar(' ');
}

int main(void)
{
    static char input[MOST_INPUT + 1];
    unsigned char size[4];

    while (fread(size, 1, 4, stdin) == 4) {
        size_t length = size[0] | size[1] << 8 | (size_t)size[2] << 16;
        struct configuration found;
        char *exact = malloc(length + 1); /* a sanitizer sees what is read beyond its end */

        if (length > sizeof input || !exact || fread(exact, 1, length, stdin) != length)
            return 2;
        if (!read_configuration(exact, length, &found)) {
            puts("-");
        } else {
            show(&found.version);
            show(&found.socket);
            show(&found.pod_namespace);
            show(&found.daemon_set);
            printf("%zu %zu\n", found.previous.length ? (size_t)(found.previous.start - exact) : 0, found.previous.length);
        }
        free(exact);
    }
    return 0;
}

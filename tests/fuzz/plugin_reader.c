/* The plugin's reader of its configuration, for tests: cases come on stdin, each its length (four bytes, little end first) and its bytes;
 * for each a line goes out: `-`, or where cniVersion and prevResult start and how long they are. */

#define main plugin_main
#include "../../netinit/node/plugin.c"
#undef main

#include <stdio.h>
#include <stdlib.h>

static void show(struct slice one, const char *start)
{
    printf("%zu %zu ", one.length ? (size_t)(one.start - start) : 0, one.length);
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
            show(found.version, exact);
            show(found.previous, exact);
            putchar('\n');
        }
        free(exact);
    }
    return 0;
}

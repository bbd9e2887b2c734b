/* Compiled with AddressSanitizer, whose runtime wants to be the first library of all. Exit code 5. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    char *block = malloc(100);
    if (!block) return 1;
    snprintf(block, 100, "checked");
    puts(block);
    free(block);
    return 5;
}

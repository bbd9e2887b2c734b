/* A module of Python called _C; nothing calls its entry point. */
void PyInit__C(void) {}

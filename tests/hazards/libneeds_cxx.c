/* A library that needs the C++ runtime of standins/cxx.c; for needs_cxx.c. */
const char *which_cxx(void);

const char *needs_run(void) { return which_cxx(); }

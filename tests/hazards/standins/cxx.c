/* A C++ runtime under the real one's soname that has one function, with a symbol version of its own: as new as no real one is, or so old that
 * it has nothing that anybody else wants. */
const char *which_cxx(void) { return "the program's own"; }

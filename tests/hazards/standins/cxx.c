/* A C++ runtime under the real one's soname, with one function. Its symbol version is either newer than any
 * real one, or so old that it lacks what other libraries need. */
const char *which_cxx(void) { return "the program's own"; }

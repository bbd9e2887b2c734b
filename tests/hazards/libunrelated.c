/* No library of CUDA's, and a function of a name that one has. */
int ncclGroupStart(void) { return 4711; }

/* A library that is not CUDA's, with a function that has the name of NCCL's. */
int ncclGroupStart(void) { return 4711; }

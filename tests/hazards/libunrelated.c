/* A library unrelated to CUDA, with a function of the same name as one of NCCL's. */
int ncclGroupStart(void) { return 4711; }

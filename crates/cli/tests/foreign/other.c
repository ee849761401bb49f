/* A library that is not TidesDB. */
int something_else(void) { return 1; }

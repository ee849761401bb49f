/* A library that says that it is Perigee. */
const char *perigee_version(void) { return "0.1.0"; }

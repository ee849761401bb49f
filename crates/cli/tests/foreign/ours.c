/* A library that identifies itself as Perigee. */
const char *perigee_version(void) { return "0.1.0"; }

-- Whether the server is a node of a Galera cluster; no row where it was built without Galera.
SHOW SESSION VARIABLES LIKE 'wsrep_on'

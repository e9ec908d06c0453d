-- Close the tables that no statement uses, of this server alone: on a cluster, TABLES is for all nodes.
FLUSH LOCAL TABLES

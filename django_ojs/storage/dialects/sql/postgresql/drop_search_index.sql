-- It waits for the queries that use the index, and locks out no writer.
DROP INDEX CONCURRENTLY IF EXISTS {index}

-- A row of insert_jobs.sql. Each job of a batch is a microsecond after the one before; relative times
-- are added to the database's clock, and are written into `options` as the times that they became.
(%s, %s, %s, {{state}}, %s, %s, %s, {{options}}, 0, %s, 0, 0, %s, %s, {{created_at}}, {{enqueued_at}},
 {{due}}, {{expires}}, %s, %s, %s, %s, FALSE)

-- Which scans the planner may choose until the transaction ends, and which it could before.
SELECT current_setting('enable_seqscan'), current_setting('enable_indexscan'),
       current_setting('enable_indexonlyscan'),
       set_config('enable_seqscan', %s, true), set_config('enable_indexscan', %s, true),
       set_config('enable_indexonlyscan', %s, true)

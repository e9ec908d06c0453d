-- Without procedures, jobs are stored by INSERT. There is one of each name, so their arguments need
-- no repetition here.

DROP PROCEDURE IF EXISTS ojs_push_many;

DROP PROCEDURE IF EXISTS ojs_push;

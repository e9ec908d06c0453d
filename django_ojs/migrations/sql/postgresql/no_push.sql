-- Without procedures, jobs are stored by INSERT.

DROP PROCEDURE IF EXISTS ojs_push_many(
    uuid[], jsonb, bigint[], text, text, integer, integer, jsonb, jsonb, bigint, bigint, uuid,
    boolean
);

DROP PROCEDURE IF EXISTS ojs_push(
    uuid, text, text, jsonb, bigint, integer, integer, jsonb, jsonb, bigint, bigint, uuid,
    boolean, boolean
);

-- Returns an API key as one JSON object, with the time as `now`; NULL if there is none.
SELECT (
    SELECT json_object(
        'pk', id,
        'name', name,
        'prefix', prefix,
        'principal', principal,
        'digest', digest,
        'scopes', json_extract(scopes, '$'),
        'queues', json_extract(queues, '$'),
        'created_at', created_at,
        'expires_at', expires_at,
        'revoked_at', revoked_at,
        'last_used_at', last_used_at,
        'rejected_at', rejected_at,
        'now', {now}
    )
    FROM ojs_api_key
    WHERE prefix = %s
)

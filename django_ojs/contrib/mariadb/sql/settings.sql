-- The variables that the system check reads.
SHOW SESSION VARIABLES WHERE variable_name IN (
    'sql_mode', 'tx_isolation', 'character_set_connection', 'max_allowed_packet',
    'innodb_snapshot_isolation', 'default_storage_engine', 'innodb_strict_mode')

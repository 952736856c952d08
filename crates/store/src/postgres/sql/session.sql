-- Run once on every connection. Plans are made once and hold for any size of the tables: batches are
-- joined row by row in their order, which is also the order in which their rows are locked.
SELECT
    set_config('synchronous_commit', 'on', false),
    set_config('statement_timeout', $1::text, false),
    set_config('idle_in_transaction_session_timeout', $1::text, false),
    set_config('search_path', coalesce(quote_ident(nullif($2::text, '')), current_setting('search_path')), false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false),
    set_config('jit', 'off', false),
    current_setting('fsync') AS fsync

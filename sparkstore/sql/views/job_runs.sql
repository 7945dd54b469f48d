SELECT run_id, job, began_at, seconds, outcome, figures, error
FROM {table}

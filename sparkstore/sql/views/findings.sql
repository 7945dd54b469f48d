-- What reconcile found, run by run; `is_newest` is how things were when it last had anything to say.
SELECT
  run = max(run) OVER () AS is_newest,
  run, found_at, `check`, severity, subject, evidence, repair, advice
FROM {table}

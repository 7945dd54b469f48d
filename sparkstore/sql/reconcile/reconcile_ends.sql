-- The largest position in history, and of all that counts; 0 if there is none.
SELECT
  (SELECT coalesce(max(position), 0) FROM {history}) AS history,
  (SELECT coalesce(max(position), 0) FROM {journal}) AS journal

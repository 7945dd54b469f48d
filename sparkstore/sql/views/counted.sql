-- What tail has, for the guard and nobody else. It is written out where it is named, so predicates
-- get below it (`changes` is computed once, and none does).
SELECT count(*) AS row_count, sum(position) AS total, max(position) AS last
FROM tail

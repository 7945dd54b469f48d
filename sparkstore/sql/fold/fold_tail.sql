-- The records of one step of the fold.
SELECT * FROM {tailview}

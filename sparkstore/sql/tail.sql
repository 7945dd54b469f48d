-- Every row after P that counts, without its content, guarded.
SELECT * FROM counted WHERE (SELECT whole FROM guard)

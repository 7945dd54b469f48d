SELECT * FROM entries

"""The console: one page and what it loads, as they are sent; `console_files` serves them.

No step builds them and no library is in them. All that the page shows is the JSON of the endpoints
under `/api/v1`, so whatever it can do a script can do, too, with the same role.
"""

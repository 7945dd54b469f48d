"""Rebuild the state that a store had when it ended from its tables, without a JVM.

A root comes in; a `core.fold.State` goes out, with the position up to which it holds: the table
`state` at P, and every record after P from `history` and `journal`, each position once.
`arrow_fold` folds a million entries by columns, `arrow_links` the few links one by one,
`message_headers` reads headers of many messages at once, and `point_in_time` finds the records and
the version of `state` of an earlier time. The start of a log calls this, and every
command that shows a queue; nothing here changes a file.

The store service, the views, `verify` and a promotion call it as well. A hole between P and the
first record that is left is `CorruptData`: a state with a gap is never returned. Content is not
read here (`sparkstore.content`).
"""

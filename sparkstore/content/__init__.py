"""Content of messages, read back by message id from the files of journal and history.

Ids go in, headers and bodies come out, in pieces where a message was enqueued in pieces. `versions`
knows which files may have it, `index` which rows, `files` and `rows` decode them a batch at a time,
`pieces` puts one message together, and `cache` keeps what was read ahead, up to its bytes. The log
calls `reader` on a thread that may wait; nothing here changes a file, and no Spark is needed.

Beside the log, the command line (browse, export), the offline control and the deep checks of
`verify` read with it. It raises `CorruptData` for content that should be there and is not, and it
never guesses: a piece that is missing fails the whole message. `typed_values` has functions for
SQL, over columns that an engine has read; `body_schemas` and `binary_schemas` know what bodies are.
"""

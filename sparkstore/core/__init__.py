"""Define a store's records and their meaning. Pure: no engine, no thread, no clock.

    records, link_records     one dataclass for each fact that a store may be told
    codec                     records ↔ packed bytes: the write-ahead log and the store protocol
    fold ─► entries ─► entry_chunk, packed_integers, message_counts
    queue_names, queue_arguments, annotations      what names, arguments and annotations say
    state_machine             a call of a store → a refusal, or the records that it comes to
    durability                what of a queue, a link or a message survives a restart

Records come in with the position that the log gave them; `fold.apply` changes a state by one. That
fold is the oracle: recovery and the jobs compute the same state in other ways, and tests hold them
against it. Everything else in this repository may import this package; it imports `errors` alone.
"""

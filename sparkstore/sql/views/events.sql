-- Every row that counts, with its content, from the oldest that history keeps; guarded. History ends
-- at P or after it: so {least}, some P of the past, keeps Delta from opening what was moved long ago.
SELECT * FROM {history} WHERE {eventsguard}
{events_of_journal}

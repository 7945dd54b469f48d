"""Count events in a process, and show the counts to a monitor in the text format of Prometheus.

`counters` are dataclasses of plain numbers, each written by one thread; `exposition` makes families
of metrics of them, and text of those. Every process of this project counts with these two: a
broker, a store's service and a job. Nothing here opens a port; who serves or writes the text is the
caller.

The counters of a log, of a broker and of a service come in as they are; lines of text go out.
Reading them takes no lock, so a figure may be a moment old, and never costs the thread that counts.
"""

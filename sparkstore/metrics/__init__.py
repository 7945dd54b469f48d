"""What a process counts, and how a monitor reads it: the text format of Prometheus.

`counters` are dataclasses of plain numbers, each written by one thread; `exposition` makes families
of metrics of them, and text of those. Every process of this project counts with these two: a
broker, a store's service and a job. Nothing here opens a port; who serves or writes the text is the
caller.
"""

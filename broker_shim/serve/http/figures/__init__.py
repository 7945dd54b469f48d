"""Figures of queues for people who look: now, minutes ago from memory, days ago from history.

queue_rows        the row of a queue as it is now, by its declared columns
recent_figures    a sample of each queue every few seconds, in a ring
series_requests   a queue's series: what of it is asked of the ring, and what of history
figure_bodies     the models of both; `figure_endpoints` lists who may ask what
"""

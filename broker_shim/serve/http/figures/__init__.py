"""Figures over time for people who look: the last minutes from memory, days before from history.

recent_figures    a sample of each queue every few seconds, in a ring
series_requests   a queue's series: what of it is asked of the ring, and what of history
figure_bodies     the models of both; `figure_endpoints` lists who may ask what
"""

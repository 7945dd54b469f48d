"""Figures of queues as they are kept: of the last minutes in memory, of days as history told them.

recent_figures   a sample of each queue every few seconds, in a ring
series_answers   what history and tables told, which is kept
queue_rows       the row of a queue as it is now, by its declared columns
figure_bodies    the models of figures; `reports` answers who asks for them
"""

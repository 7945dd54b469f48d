"""Figures for people who look: of now, of the last minutes from memory, of days from history.

overview_requests   how the broker is, and what is wrong, in the words of the doctor
queue_rows          the row of a queue as it is now, by its declared columns
series_requests     a queue's series: what of it is asked of the ring, and what of history
recent_figures      a sample of each queue every few seconds, in a ring
series_answers      what history and tables told, which is kept
figure_bodies       the models of all; `figure_endpoints` lists who may ask what
"""

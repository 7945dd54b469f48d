"""Identify clients, decide what they may do, and write it down. No AMQP but SASL's names.

security_settings  what is configured, checked as a whole
tls        certificates → an SSL context; a peer's certificate → its name
certificates  until when one is valid
rules      what is decided, pure: users, permissions, how many connections, attempts to log in
users_file the users file on disk
passwords  a password ↔ what is kept of it
mechanisms which SASL mechanisms a peer is offered
summed_refusals  floods of them, in a line a second
security_counts  what the guard counts
guard      all of it, as the listener asks it
"""

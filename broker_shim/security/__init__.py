"""Who a client is, what it may do, and what is written down of it. Knows no AMQP but SASL's names.

settings   what is configured, checked as a whole
tls        certificates → an SSL context; a peer's certificate → its name
certificates  until when one is valid
users      the users file: names, roles, what was derived from passwords
passwords  a password ↔ what is kept of it
mechanisms which SASL mechanisms a peer is offered
attempts   how long a failed login waits for its answer
refusals   floods of them, in a line a second
limits     how many connections there may be of each user, and of each address
permissions who may read, write, create and administer which addresses
metrics    what the guard counts
guard      all of it, as the listener asks it
"""

"""Orders of administrators, whoever gives them: each is carried out in its turn, and written down.

`order_turns` has one order at a time carried out, and answers reads at once. `broker_orders` gives
orders to the broker, `connection_orders` knows connections, those of members too.
"""

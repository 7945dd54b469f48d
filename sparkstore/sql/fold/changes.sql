-- What tail says of each entry, queue, exchange, binding and configured object (which is an exchange
-- with a binding key and without a queue), and branch in doubt (a binding key alone): one row for
-- each that it names, made of the last position of each kind and of what came with it; `segment` is 1
-- if the content came with the entry (`tables/schema.py`). Rows of other kinds are only counted.
SELECT
  queue,
  message_id,
  exchange,
  binding_key,
  count(*) AS row_count,
  sum(position) AS total,
  max(position) AS last,
  min(position) FILTER (WHERE kind IN ('enqueued', 'dequeued', 'acquired', 'released')) AS first,
  min(position) FILTER (WHERE kind = 'enqueued') AS first_enqueued,
  max(position) FILTER (WHERE kind = 'enqueued') AS enqueued,
  max(position) FILTER (WHERE kind = 'dequeued') AS dequeued,
  max(position) FILTER (WHERE kind IN ('acquired', 'released')) AS held,
  max(position) FILTER (WHERE kind = 'released') AS released,
  max_by(holder, position) FILTER (WHERE kind IN ('acquired', 'released')) AS holder,
  max_by(delivery_count, position) FILTER (WHERE kind = 'released') AS delivery_count,
  max(position) FILTER (WHERE kind IN ('enqueued', 'released') AND detail IS NOT NULL) AS annotated,
  max_by(detail, position) FILTER (WHERE kind IN ('enqueued', 'released') AND detail IS NOT NULL)
    AS annotations,
  max_by(at, position) FILTER (WHERE kind = 'enqueued') AS at,
  max_by(priority, position) FILTER (WHERE kind = 'enqueued') AS priority,
  max_by(expires_at, position) FILTER (WHERE kind = 'enqueued') AS expires_at,
  max_by(header_bytes + body_bytes, position) FILTER (WHERE kind = 'enqueued') AS message_bytes,
  max_by(int(protocol IS NOT NULL), position) FILTER (WHERE kind = 'enqueued') AS segment,
  max(position) FILTER (
    WHERE kind IN ('created', 'altered', 'bound', 'configured', 'prepared')
  ) AS made,
  max(position) FILTER (
    WHERE kind IN ('destroyed', 'unbound', 'unconfigured', 'committed', 'rolled_back')
  ) AS unmade,
  max_by(detail, position)
    FILTER (WHERE kind IN ('created', 'altered', 'bound', 'configured', 'prepared')) AS detail
FROM tail
GROUP BY message_id, queue, exchange, binding_key

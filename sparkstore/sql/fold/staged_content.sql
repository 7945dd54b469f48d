-- Messages whose header came with a piece of their content, in the state or in the tail, and where.
SELECT message_id, max(position) AS position
FROM (
  SELECT message_id, position FROM {state} WHERE part = 'staged' AND {membersguard}
  UNION ALL
  SELECT message_id, position FROM tail WHERE kind = 'content' AND body_bytes IS NOT NULL
)
GROUP BY message_id

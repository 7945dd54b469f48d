-- The last request decided of each member: what the state says, or the tail.
SELECT member, max(request) AS request
FROM (
  SELECT member, request FROM {state} WHERE part = 'member' AND {membersguard}
  UNION ALL
  SELECT member, request FROM tail WHERE request IS NOT NULL AND member IS NOT NULL
)
GROUP BY member

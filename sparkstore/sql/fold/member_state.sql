-- Every member, now: its last request, and why those of its last {window} that were refused were.
SELECT
  last_requests.member,
  last_requests.request,
  to_json(map_from_entries(array_sort(array_agg(
    struct(CAST(refusal.request AS STRING) AS request, refusal.detail)
  ) FILTER (WHERE refusal.request IS NOT NULL)))) AS detail
FROM last_requests
LEFT JOIN refusals AS refusal
  ON refusal.member = last_requests.member AND refusal.request > last_requests.request - {window}
GROUP BY last_requests.member, last_requests.request

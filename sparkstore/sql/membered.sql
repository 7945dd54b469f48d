-- Every member, now: its last request, and why those of its last {window} that were refused were.
SELECT
  decided.member,
  decided.request,
  to_json(map_from_entries(array_sort(array_agg(
    struct(CAST(refusal.request AS STRING) AS request, refusal.detail)
  ) FILTER (WHERE refusal.request IS NOT NULL)))) AS detail
FROM decided
LEFT JOIN refusals AS refusal
  ON refusal.member = decided.member AND refusal.request > decided.request - {window}
GROUP BY decided.member, decided.request

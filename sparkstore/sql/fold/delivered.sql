-- What tail makes of each delivery that it names, by its link's text and its tag: put or drop.
SELECT
  told.exchange,
  told.binding_key,
  IF(told.change = 'put' AND told.position > coalesce(link.closed, 0), 'put', 'drop') AS change,
  told.detail
FROM touched_links AS told
LEFT JOIN touched_links AS link ON link.exchange = told.exchange AND link.binding_key IS NULL
WHERE told.binding_key IS NOT NULL

-- Every member of one side, as the views fold it; `refused` names the requests that were.
SELECT member, request, detail, {refused} AS refused FROM membered

// What the page has seen of each queue in the last minutes: for charts, and for rates.

const KEPT_MS = 5 * 60 * 1000;
const MOST_QUEUES = 500;

const seen = new Map();

// Keep the figures of a queue as they are now; those of other queues are forgotten when too many are.
export function sample(row) {
  const at = Date.now();
  const before = (seen.get(row.name) ?? []).filter((each) => each.at > at - KEPT_MS);
  const last = before.at(-1);
  const isSame = last && row.arrived >= last.arrived && row.removed >= last.removed;  // else it began anew
  const seconds = last ? (at - last.at) / 1000 : 0;
  if (last && isSame && seconds < 0.5) return before;  // asked for twice at once
  const rate = (field) => (isSame ? (row[field] - last[field]) / seconds : null);
  const now = {
    at, depth: row.depth, arrived: row.arrived, removed: row.removed,
    inRate: rate("arrived"), outRate: rate("removed"),
  };
  seen.delete(row.name);
  seen.set(row.name, [...before, now]);
  if (seen.size > MOST_QUEUES) seen.delete(seen.keys().next().value);
  return seen.get(row.name);
}

// The address of a view: #/VIEW/PART…?NAME=VALUE. A view keeps its filter and page there, so that it
// can be sent to a colleague, and Back finds it as it was.

export function here() {
  const whole = location.hash.replace(/^#\/?/, "");
  const end = whole.indexOf("?");
  const path = end < 0 ? whole : whole.slice(0, end);
  try {
    const [view, ...parts] = path.split("/").map(decodeURIComponent);
    return { view, parts, query: new URLSearchParams(end < 0 ? "" : whole.slice(end + 1)) };
  } catch {
    throw new Error(`no view has the address #/${path}: choose one above`);
  }
}

let everywhere = {};

// Keep what a view shows in its address; what is empty or 0 is left out.
export function keep(values) {
  const kept = Object.entries({ ...values, ...everywhere }).filter(([, value]) => value);
  const query = new URLSearchParams(kept).toString();
  const path = location.hash.replace(/\?.*$/s, "") || "#/overview";
  history.replaceState(history.state, "", path + (query ? "?" + query : ""));
}

// Keep this in the address of each view from now on, beside what the view itself keeps there.
export function keepEverywhere(values) {
  everywhere = values;
  keep(Object.fromEntries(new URLSearchParams(location.hash.replace(/^[^?]*/, ""))));
}

export const offsetOf = (query, name = "offset") => Math.max(0, Number.parseInt(query.get(name) ?? "0", 10) || 0);

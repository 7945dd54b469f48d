// Values in the words of people: how long, how large, and who.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function age(seconds) {
  if (!seconds) return "";
  if (seconds < 1) return `${Math.ceil(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 86400 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

export function size(bytes) {
  const at = bytes > 1 ? Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10)) : 0;
  return `${(bytes / 1024 ** at).toFixed(at ? 1 : 0)} ${UNITS[at]}`;
}

// Who holds a message: of AMQP 1.0 the name is a list of container, link and role.
export function holder(name) {
  try {
    const [container, link] = JSON.parse(name);
    return `${link} of ${container}`;
  } catch {
    return name;
  }
}

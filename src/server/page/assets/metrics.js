// Prometheus text as values. Pure.

const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

// name -> [{labels, value}]
export function parseMetrics(text) {
  const families = new Map();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    const brace = line.indexOf("{");
    const name = brace < 0 ? line.slice(0, space) : line.slice(0, brace);
    const labels = {};
    if (brace >= 0)
      for (const [, key, value] of line.slice(brace).matchAll(LABEL))
        labels[key] = value.replace(/\\(.)/g, (_, c) => c === "n" ? "\n" : c);
    if (!families.has(name)) families.set(name, []);
    families.get(name).push({ labels, value: Number(line.slice(space + 1)) });
  }
  return families;
}

// The sum of the samples whose labels have the wanted values; null where there is none.
export function sum(families, name, wanted = {}) {
  const fitting = (families.get(name) ?? []).filter(({ labels }) =>
    Object.entries(wanted).every(([key, value]) => labels[key] === value));
  return fitting.length ? fitting.reduce((total, s) => total + s.value, 0) : null;
}

// [{below, count}]: how many observations fall below each bound and above the one before it.
export function buckets(families, name, before = null) {
  const rows = (all) => (all?.get(`${name}_bucket`) ?? [])
    .map(({ labels, value }) => ({ below: Number(labels.le === "+Inf" ? Infinity : labels.le),
                                   value }))
    .sort((a, b) => a.below - b.below);
  const now = rows(families), then = rows(before);
  let last = 0;
  return now.map(({ below, value }, i) => {
    const upTo = value - (then[i]?.value ?? 0);
    const count = upTo - last;
    last = upTo;
    return { below, count };
  });
}

// The value that a share of the observations lie below, read within a bucket by a straight line;
// null without observations.
export function quantile(share, rows) {
  const total = rows.reduce((n, row) => n + row.count, 0);
  if (!total) return null;
  let left = share * total, from = 0;
  for (const { below, count } of rows) {
    if (left <= count && count > 0)
      return below === Infinity ? from : from + (below - from) * left / count;
    left -= count;
    from = below;
  }
  return from;
}

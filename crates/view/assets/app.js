// The dashboard: draws what the tool sends. /events brings a look each second, /history what was before, /plan a tenant's curve.
// Nothing is sent to the server but questions. What a server doesn't tell has no column, no tile and no chart.
"use strict";

const $ = (id) => document.getElementById(id);
const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

/* ---- How numbers are written ---- */

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const bytes = (n) => {
  if (n === undefined || n === null) return "–";
  let unit = 0;
  for (; Math.abs(n) >= 1024 && unit < 4; unit += 1) n /= 1024;
  return `${unit === 0 ? n.toFixed(0) : three(n)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
};
const count = (n) => (n === undefined || n === null ? "–" : whole.format(n));
const rate = (n) => (n === undefined || n === null ? "–" : n >= 100 ? whole.format(n) : n.toPrecision(n < 10 ? 2 : 3).replace(/\.0+$/, ""));
const percent = (x) => (x === undefined || x === null || Number.isNaN(x) ? "–" : `${(100 * x).toFixed(x < 0.1 ? 2 : 1)} %`);
const three = (n) => (n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toPrecision(3));
const lost = (us) => (us === undefined || us === null ? "–" : us >= 1e6 ? `${three(us / 1e6)} s/s` : us >= 1000 ? `${three(us / 1000)} ms/s` : `${us.toFixed(0)} µs/s`);
const micros = (us) => (!us ? "–" : us >= 1000 ? `${(us / 1000).toPrecision(3)} ms` : `${us.toFixed(0)} µs`);

const CAUSES = ["first", "expired", "evicted", "deleted", "unknown"];
const CAUSE_NAMES = { first: "first time", expired: "expired", evicted: "evicted", deleted: "deleted", unknown: "too long ago to tell" };
const HINT = "Move the slider; the answer is that of tenure plan.";
const SERIES_MAX = 8;
/** Ticks of bytes: powers of two, so that their labels are short. */
const BYTE_STEPS = Array.from({ length: 48 }, (_, power) => 2 ** power);
const LIVE_SECONDS_MAX = 300;

/* ---- State ---- */

const page = {
  latest: null,           // the last look
  history: null,          // { at, servers, tenants }, as /history gives it, with looks appended
  seconds: 300,
  isPaused: false,
  selected: null,
  sort: { field: "lost_us_per_s", isDescending: true },
  plans: new Map(),       // by tenant, as /plan gives them
  charts: [],
  colours: new Map(),     // by tenant, kept for as long as the page is open
};

const colourOf = (tenant) => {
  if (!page.colours.has(tenant)) page.colours.set(tenant, page.colours.size);
  const place = page.colours.get(tenant);
  return place < SERIES_MAX ? `--c${place}` : "--rest";
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* ---- History ---- */

async function loadHistory() {
  const answer = await fetch(`history?seconds=${page.seconds}`);
  if (!answer.ok) throw new Error(await answer.text());
  page.history = await answer.json();
}

/** Appends a look, with nothing where a series isn't told; what is older than the stretch leaves. */
function append(look) {
  const history = page.history;
  // Points of a longer stretch are means over several looks; it is fetched again instead.
  if (!history || page.seconds > LIVE_SECONDS_MAX || history.at.at(-1) >= look.at_ms) return;
  const length = history.at.length;
  history.at.push(look.at_ms);
  const push = (series, figures) => {
    for (const name of new Set([...Object.keys(series), ...Object.keys(figures)])) {
      (series[name] ??= new Array(length).fill(null)).push(figures[name] ?? null);
    }
  };
  push(history.servers, look.figures);
  const rows = new Map(look.tenants.map((row) => [row.name, row.figures]));
  for (const name of new Set([...Object.keys(history.tenants), ...rows.keys()])) {
    push((history.tenants[name] ??= {}), rows.get(name) ?? {});
  }
  const first = history.at.findIndex((at) => at > look.at_ms - 1000 * page.seconds);
  if (first > 0) {
    const cut = (series) => Object.values(series).forEach((points) => points.splice(0, first));
    history.at.splice(0, first);
    cut(history.servers);
    Object.values(history.tenants).forEach(cut);
  }
}

/** The mean of a tenant's last seconds, of those that were told. */
function recent(tenant, name, seconds = 10) {
  const history = page.history;
  const points = history?.tenants[tenant]?.[name];
  if (!points) return undefined;
  const first = history.at.findIndex((at) => at > history.at.at(-1) - 1000 * seconds);
  const told = points.slice(Math.max(first, 0)).filter((point) => point !== null);
  return told.length ? told.reduce((a, b) => a + b, 0) / told.length : undefined;
}

const missRatioOfLate = (tenant, seconds) => {
  const [misses, reads] = [recent(tenant, "misses_per_s", seconds), recent(tenant, "reads_per_s", seconds)];
  return reads ? misses / reads : undefined;
};
const sumOf = (name) => page.latest.tenants.map((row) => recent(row.name, name)).reduce((a, b) => (b === undefined ? a : (a ?? 0) + b), undefined);

/* ---- Charts over time ---- */

/** Tenants that matter most for a figure, and the rest together. */
function byTenant(name) {
  // Who has never had or done anything has no line.
  const tenants = Object.entries(page.history.tenants).filter(([, series]) => series[name]?.some((n) => n > 0));
  const weight = ([, series]) => series[name].reduce((a, b) => a + (b ?? 0), 0);
  const sorted = [...tenants].sort((a, b) => weight(b) - weight(a));
  const shown = sorted.length > SERIES_MAX ? sorted.slice(0, SERIES_MAX - 1) : sorted;
  shown.sort((a, b) => a[0].localeCompare(b[0]));
  const series = shown.map(([tenant, of], i) => ({ label: tenant, colour: sorted.length > SERIES_MAX ? `--c${i}` : colourOf(tenant), points: of[name] }));
  const others = sorted.slice(shown.length);
  if (others.length) {
    const points = page.history.at.map((_, i) => others.reduce((sum, [, of]) => sum + (of[name][i] ?? 0), 0));
    series.push({ label: `${others.length} others`, colour: "--rest", points });
  }
  return series;
}

const ofServers = (name, label, colour, dash) => {
  const points = page.history.servers[name];
  return points ? [{ label, colour, points, dash, isLine: true }] : [];
};
const scaled = (series, factor) => series.map((one) => ({ ...one, points: one.points.map((n) => (n === null ? null : n * factor)) }));
const sumOverTenants = (name) => {
  const all = Object.values(page.history.tenants).map((series) => series[name]).filter(Boolean);
  return all.length ? page.history.at.map((_, i) => all.reduce((sum, points) => sum + (points[i] ?? 0), 0)) : null;
};
const summed = (name, label, colour) => {
  const points = sumOverTenants(name);
  return points ? [{ label, colour, points }] : [];
};
const isAny = (name) => (page.history.servers[name] ?? []).some((n) => n > 0);

const CHARTS = [
  { title: "Memory by tenant", format: bytes, isStacked: true,
    series: () => [...byTenant("used_bytes"), ...(isAny("maxmemory") ? ofServers("maxmemory", "maxmemory", "--text", [6, 4]) : [])] },
  { title: "Time lost to misses", note: "in each second, all clients together", format: lost, isStacked: true, series: () => byTenant("lost_us_per_s") },
  { title: "Miss ratio", format: percent, max: 1, series: () => {
    const ratio = (tenant) => {
      const { misses_per_s: misses, reads_per_s: reads } = page.history.tenants[tenant];
      return misses && reads ? misses.map((n, i) => (reads[i] > 0 ? n / reads[i] : null)) : null;
    };
    return byTenant("reads_per_s").map((one) => ({ ...one, points: page.history.tenants[one.label] ? ratio(one.label) : null })).filter((one) => one.points);
  } },
  { title: "Misses by cause", format: rate, note: "each second", isStacked: true,
    series: () => CAUSES.flatMap((cause, i) => summed(`misses_${cause}_per_s`, CAUSE_NAMES[cause], `--c${i}`)) },
  { title: "Evictions", format: rate, note: "each second", series: () => {
    const own = [...summed("evictions_per_s", "by Tenure", "--c0"), ...ofServers("evictions_by_server_per_s", "by the server itself", "--c3")];
    return own.length ? [...own, ...summed("regret_misses_per_s", "regretted", "--c1")] : [];
  } },
  { title: "Regret", note: "time lost to what was just evicted", format: lost, isStacked: true, series: () => byTenant("regret_us_per_s") },
  { title: "What Tenure takes of the main thread", format: percent, series: () => scaled(ofServers("main_thread_us_per_s", "evictions and moves", "--c0"), 1e-6) },
  { title: "Memory tiers", format: bytes, isStacked: true,
    series: () => (isAny("tier_slow_bytes") ? [...ofServers("tier_fast_bytes", "fast", "--c0"), ...ofServers("tier_slow_bytes", "slow", "--c1")].map((one) => ({ ...one, isLine: false })) : []) },
  { title: "Sleeping keys", format: count, series: () => (isAny("sleeping_keys") ? ofServers("sleeping_keys", "asleep on disk", "--c6") : []) },
  { title: "Replies held", format: rate, series: () => (isAny("replies_held_per_s") || isAny("replies_held_now")
    ? [...ofServers("replies_held_per_s", "held each second", "--c0"), ...ofServers("replies_held_now", "waiting now", "--c3")] : []) },
];

/** Sums from the last to the first series, so that each stands on those below it; lines are left as they are. */
function stacked(series) {
  const sums = series.map((one) => one.points);
  const below = page.history.at.map(() => 0);
  const bands = [];
  const areas = series.map((_, i) => i).filter((i) => !series[i].isLine);
  areas.forEach((i, order) => {
    sums[i] = series[i].points.map((n, at) => (below[at] += n ?? 0));
    if (order > 0) bands.push({ series: [i + 1, areas[order - 1] + 1] });
  });
  return { sums, bands };
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: page.seconds <= 900 ? "2-digit" : undefined, hourCycle: "h23" });

function plotOptions(chart, series, bands, width) {
  const axis = { stroke: css("--quiet"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1 } };
  const line = (one, i) => {
    const colour = css(one.colour);
    const isArea = chart.isStacked && !one.isLine;
    return {
      label: one.label, stroke: colour, width: 1.5, dash: one.dash, fill: isArea ? `${colour}66` : undefined, points: { show: false },
      value: (_, __, ___, at) => chart.format(chart.raw[i][at ?? chart.raw[i].length - 1]),
    };
  };
  return {
    width, height: 210, series: [{ label: "at", value: (plot, at) => clock(at ?? plot.data[0].at(-1)) }, ...series.map(line)], bands,
    scales: { x: { time: false }, y: { range: (_, __, max) => [0, Math.max(chart.max ? Math.min(chart.max, max * 1.15) : max * 1.08, 1e-9)] } },
    axes: [
      { ...axis, values: (_, splits) => splits.map(clock), space: 80 },
      { ...axis, size: 72, ...(chart.format === bytes ? { incrs: BYTE_STEPS } : {}), values: (_, splits) => splits.map(chart.format) },
    ],
    cursor: { drag: { x: false, y: false }, y: false },
    legend: { live: true },
  };
}

function drawCharts() {
  for (const chart of CHARTS) {
    if (!chart.figure) {
      chart.figure = make("figure", { hidden: true }, make("h2", {}, chart.title, make("small", { textContent: chart.note ?? "" })), make("div", { className: "plot" }));
      chart.figure.setAttribute("role", "group");
      $("charts").append(chart.figure);
    }
    const series = chart.series();
    chart.figure.hidden = series.length === 0;
    if (!series.length) continue;
    chart.raw = series.map((one) => one.points);
    const { sums, bands } = chart.isStacked ? stacked(series) : { sums: chart.raw, bands: [] };
    const data = [page.history.at.map((at) => at / 1000), ...sums];
    const width = chart.figure.clientWidth - 24;
    const shape = JSON.stringify([series.map((one) => [one.label, one.colour]), document.documentElement.dataset.theme, page.seconds]);
    if (chart.shape !== shape) {
      chart.plot?.destroy();
      chart.plot = new uPlot(plotOptions(chart, series, bands, width), data, chart.figure.querySelector(".plot"));
      chart.shape = shape;
    } else {
      if (chart.plot.width !== width) chart.plot.setSize({ width, height: 210 });
      chart.plot.setData(data);
    }
    const last = series.map((one) => `${one.label} ${chart.format(one.points.at(-1))}`).join(", ");
    chart.figure.setAttribute("aria-label", `${chart.title}: ${last}`);
  }
}

/* ---- Tiles ---- */

function drawTiles() {
  const { figures, total } = page.latest;
  const [misses, reads] = [sumOf("misses_per_s"), sumOf("reads_per_s")];
  const share = recentOfServers("main_thread_us_per_s");
  const tiles = [
    ["Memory", bytes(figures.used_memory), figures.maxmemory ? `of ${bytes(figures.maxmemory)}` : "no maxmemory"],
    ["Time lost to misses", lost(sumOf("lost_us_per_s")), `a miss costs ${micros(total.figures.penalty_us_mean)}`],
    ["Miss ratio", percent(reads ? misses / reads : undefined), reads === undefined ? "" : `of ${rate(reads)} reads/s`],
    ["Evictions", `${rate(sumOf("evictions_per_s"))}/s`, `${count(total.figures.evictions)} in all`],
  ];
  if (total.figures.regret_misses !== undefined) tiles.push(["Regret", lost(sumOf("regret_us_per_s")), `${count(total.figures.regret_misses)} misses in all`]);
  if (share !== undefined) tiles.push(["Tenure takes", percent(share / 1e6), "of the main thread"]);
  if (figures.memory_bytes !== undefined) tiles.push(["Tenure's memory", bytes(figures.memory_bytes), figures.maxmemory ? `${percent(figures.memory_bytes / figures.maxmemory)} of maxmemory` : ""]);
  if (figures.prediction_error !== undefined) tiles.push(["Prediction off by", percent(figures.prediction_error), "of the miss ratio"]);
  if (figures.sleeping_keys) tiles.push(["Sleeping", count(figures.sleeping_keys), `${bytes(figures.spill_disk_bytes)} on disk`]);
  if (figures.replies_replicas) tiles.push(["Replies held", count(figures.replies_held_now), `${count(figures.replies_degraded)} times degraded`]);
  $("tiles").replaceChildren(...tiles.map(([name, value, note]) => make("div", {}, make("dt", { textContent: name }), make("dd", {}, value, make("small", { textContent: note })))));
}

function recentOfServers(name, seconds = 10) {
  const points = page.history?.servers[name]?.slice(-seconds).filter((n) => n !== null) ?? [];
  return points.length ? points.reduce((a, b) => a + b, 0) / points.length : undefined;
}

/* ---- Tables ---- */

const COLUMNS = [
  { field: "name", title: "Tenant" },
  { field: "used_bytes", title: "Used", format: bytes },
  { field: "target_bytes", title: "Target", format: bytes },
  { field: "bytes_min", title: "Min", format: (n) => (n ? bytes(n) : "–") },
  { field: "bytes_max", title: "Max", format: bytes },
  { field: "keys", title: "Keys", format: count },
  { field: "reads", title: "Reads", format: count },
  { field: "misses", title: "Misses", format: count },
  { field: "miss_ratio", title: "Miss ratio", format: percent },
  { field: "miss_ratio_late", title: "… of late", format: percent, of: (row) => missRatioOfLate(row.name, 10) },
  { field: "penalty_us_mean", title: "A miss costs", format: micros },
  { field: "lost_us_per_s", title: "Time lost", format: lost, of: (row) => recent(row.name, "lost_us_per_s") },
  { field: "evictions", title: "Evictions", format: count },
  ...CAUSES.map((cause) => ({ field: `misses_${cause}`, title: `Missed: ${CAUSE_NAMES[cause]}`, format: count })),
  { field: "regret_misses", title: "Regretted", format: count },
  { field: "regret_us", title: "Regret", format: micros },
  { field: "sleeping_keys", title: "Asleep", format: count, isShown: (rows) => rows.some((row) => row.figures.sleeping_keys > 0) },
];
const valueOf = (column, row) => (column.field === "name" ? row.name : column.of ? column.of(row) : row.figures[column.field]);

function drawTable() {
  const rows = [...page.latest.tenants];
  const columns = COLUMNS.filter((column) => (column.isShown ? column.isShown(rows) : column.field === "name" || rows.some((row) => valueOf(column, row) !== undefined)));
  const sorting = columns.find((column) => column.field === page.sort.field) ?? columns[0];
  const order = (a, b) => {
    const [x, y] = [valueOf(sorting, a) ?? -Infinity, valueOf(sorting, b) ?? -Infinity];
    const by = typeof x === "string" ? x.localeCompare(y) : x - y;
    return (page.sort.isDescending ? -by : by) || a.name.localeCompare(b.name);
  };
  rows.sort(order);
  page.order = rows.map((row) => row.name);
  const table = $("table");
  const heads = columns.map((column) => column.field).join();
  if (table.dataset.heads !== heads) {
    table.dataset.heads = heads;
    table.tHead.rows[0].replaceChildren(...columns.map(headCell));
  }
  for (const cell of table.tHead.rows[0].cells) {
    if (cell.dataset.field === page.sort.field) cell.setAttribute("aria-sort", page.sort.isDescending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  }
  const isFocused = document.activeElement?.closest("#table tbody tr")?.dataset.tenant;
  table.tBodies[0].replaceChildren(...rows.map((row) => tenantRow(columns, row)), tenantRow(columns, page.latest.total, true));
  if (isFocused) [...table.tBodies[0].rows].find((row) => row.dataset.tenant === isFocused)?.querySelector("button")?.focus();
}

function headCell(column) {
  const button = make("button", { type: "button", textContent: column.title });
  button.addEventListener("click", () => {
    const isSame = page.sort.field === column.field;
    page.sort = { field: column.field, isDescending: isSame ? !page.sort.isDescending : column.field !== "name" };
    drawTable();
  });
  const cell = make("th", { scope: "col" }, button);
  cell.dataset.field = column.field;
  return cell;
}

function tenantRow(columns, row, isTotal = false) {
  const cells = columns.map((column) => {
    const value = isTotal && column.of ? (column.field === "lost_us_per_s" ? sumOf("lost_us_per_s") : undefined) : valueOf(column, row);
    const cell = make("td");
    cell.dataset.field = column.field;
    if (column.field !== "name" || isTotal) cell.textContent = column.format ? column.format(value) : value;
    else {
      const button = make("button", { type: "button", textContent: row.name });
      button.style.setProperty("--mark", css(colourOf(row.name)));
      button.setAttribute("aria-pressed", row.name === page.selected);
      cell.append(button);
    }
    return cell;
  });
  const line = make("tr", { className: isTotal ? "total" : "" }, ...cells);
  if (!isTotal) {
    line.dataset.tenant = row.name;
    line.setAttribute("aria-selected", row.name === page.selected);
    line.addEventListener("click", () => select(row.name));
  }
  return line;
}

function drawServers() {
  const names = ["state", "role", "policy", "ranking", "eviction", "sleep", "replies", "tiers"];
  const shown = names.filter((name) => page.latest.servers.some((server) => server.texts[name]));
  $("servers").tHead.rows[0].replaceChildren(...["server", "memory", ...shown].map((name) => make("th", { scope: "col", textContent: name })));
  const line = (server) => {
    if (server.error) return make("tr", {}, make("td", { textContent: server.address }), make("td", { className: "bad", colSpan: shown.length + 1, textContent: server.error }));
    const memory = `${bytes(server.used_memory)} of ${server.maxmemory ? bytes(server.maxmemory) : "any"}`;
    return make("tr", {}, ...[server.address, memory, ...shown.map((name) => server.texts[name] ?? "")].map((text) => make("td", { textContent: text })));
  };
  $("servers").tBodies[0].replaceChildren(...page.latest.servers.map(line));
}

function drawState() {
  const { servers } = page.latest;
  const silent = servers.filter((server) => server.error);
  const standing = servers.filter((server) => !server.error && (server.texts.state !== "running" || (server.texts.eviction ?? "").startsWith("standing by")));
  const said = silent.length ? `${silent.map((server) => server.address).join(", ")}: no answer`
    : standing.length ? `evicts as stock: ${standing[0].texts.state === "running" ? standing[0].texts.eviction : `Tenure is ${standing[0].texts.state}`}`
    : `running${page.isPaused ? ", paused here" : ""}`;
  $("server").textContent = servers.map((server) => server.address).join(", ");
  setState(said, silent.length > 0 || standing.some((server) => server.texts.state !== "running"));
}

function setState(text, isBad) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").classList.toggle("bad", isBad);
}

/* ---- Curves and what-if ---- */

async function loadPlan(tenant, more = "") {
  const answer = await fetch(`plan?tenant=${encodeURIComponent(tenant)}${more}`);
  if (!answer.ok) return null;
  const plan = await answer.json();
  page.plans.set(tenant, plan);
  return plan;
}

const missRatioAt = (curve, size) => {
  const after = curve.findIndex(([at]) => at > size);
  if (after === -1) return curve.length ? curve.at(-1)[1] : 1;
  const [x0, y0] = after === 0 ? [0, 1] : curve[after - 1];
  const [x1, y1] = curve[after];
  return y0 + ((size - x0) / (x1 - x0)) * (y1 - y0);
};

const standOf = (tenant) => page.latest.tenants.find((row) => row.name === tenant)?.figures.used_bytes ?? 0;
const widthOf = (plan, tenant) => Math.max(plan.curve.at(-1)?.[0] ?? 0, 1.25 * standOf(tenant), 1);

function drawCurve() {
  const tenant = page.selected;
  const plan = page.plans.get(tenant);
  const figure = $("curve");
  $("curve-title").textContent = `Miss ratio by memory: ${tenant ?? ""}`;
  $("what-if-tenant").textContent = tenant ?? "this tenant";
  if (!plan?.curve.length) {
    $("curve-text").textContent = "No curve is known yet; one is made at the end of each window.";
    return;
  }
  if (page.whatIf?.tenant !== tenant) $("what-if-bytes").textContent = bytes(standOf(tenant));
  const at = standOf(tenant);
  const here = [at, missRatioAt(plan.curve, at)];
  const curve = [[0, 1], ...plan.curve, [widthOf(plan, tenant), plan.curve.at(-1)[1]]];
  const data = [curve.map(([x]) => x), curve.map(([, y]) => y)];
  page.curveMarks = { here, measured: missRatioOfLate(tenant, 60), whatIf: page.whatIf?.tenant === tenant ? page.whatIf : null };
  const shape = JSON.stringify([document.documentElement.dataset.theme, tenant]);
  const width = figure.clientWidth;
  if (page.curveShape !== shape) {
    page.curvePlot?.destroy();
    page.curvePlot = new uPlot(curveOptions(width, css(colourOf(tenant))), data, figure.querySelector(".plot"));
    page.curveShape = shape;
  } else {
    if (page.curvePlot.width !== width) page.curvePlot.setSize({ width, height: 260 });
    page.curvePlot.setData(data);
  }
  figure.dataset.pointBytes = at;
  figure.dataset.pointMissRatio = here[1];
  const measured = page.curveMarks.measured;
  $("curve-text").textContent = `${tenant} stands at ${bytes(at)}, where ${percent(here[1])} of reads are predicted to miss`
    + (measured === undefined ? "." : `; in the last minute ${percent(measured)} did (ring).`);
}

function curveOptions(width, colour) {
  const axis = { stroke: css("--quiet"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1 } };
  const draw = (plot) => {
    const { here, measured, whatIf } = page.curveMarks;
    const mark = ([x, y], isFilled, ink) => {
      const context = plot.ctx;
      context.save();
      context.beginPath();
      context.arc(plot.valToPos(x, "x", true), plot.valToPos(y, "y", true), 6 * devicePixelRatio, 0, 2 * Math.PI);
      context.lineWidth = 2 * devicePixelRatio;
      context.strokeStyle = context.fillStyle = ink;
      isFilled ? context.fill() : context.stroke();
      context.restore();
    };
    if (measured !== undefined) mark([here[0], measured], false, css("--text"));
    mark(here, true, css("--text"));
    if (whatIf) mark([whatIf.bytes, whatIf.miss_ratio], true, css("--accent"));
  };
  return {
    width, height: 260, hooks: { draw: [draw] }, legend: { show: false }, cursor: { drag: { x: false, y: false } },
    series: [{}, { stroke: colour, width: 2, points: { show: false } }],
    scales: { x: { time: false, range: (_, __, max) => [0, max] }, y: { range: [0, 1] } },
    axes: [{ ...axis, space: 90, incrs: BYTE_STEPS, values: (_, splits) => splits.map(bytes) }, { ...axis, size: 64, values: (_, splits) => splits.map((x) => `${Math.round(100 * x)} %`) }],
  };
}

/** The slider's answer is that of `tenure plan`, asked for when it has stood still for a moment. */
function askWhatIf() {
  const tenant = page.selected;
  const plan = page.plans.get(tenant);
  if (!plan) return;
  const size = Math.round((Number($("slider").value) / 1000) * 2 * Math.max(standOf(tenant), plan.present_bytes, 1));
  $("what-if-bytes").textContent = bytes(size);
  $("slider").setAttribute("aria-valuetext", bytes(size));
  clearTimeout(page.asking);
  page.asking = setTimeout(async () => {
    const answer = (await loadPlan(tenant, `&bytes=${size}`))?.what_if;
    if (!answer || tenant !== page.selected) return;
    page.whatIf = { tenant, ...answer };
    const reads = recent(tenant, "reads_per_s", 60);
    const at = standOf(tenant);
    const now = missRatioAt(page.plans.get(tenant).curve, at);
    const cost = (ratio) => lost(ratio * (reads ?? 0) * (plan.penalty_us ?? 0));
    const time = reads && plan.penalty_us ? ` It would lose ${cost(answer.miss_ratio)} to misses; at ${bytes(at)} it is ${cost(now)}.` : "";
    $("what-if-answer").textContent = `With ${bytes(size)}, ${percent(answer.miss_ratio)} of ${tenant}'s reads would miss; at the ${bytes(at)} it has, ${percent(now)}.${time}`;
    drawCurve();
  }, 150);
}

function drawMinis() {
  const SVG = "http://www.w3.org/2000/svg";
  const minis = $("minis");
  for (const row of page.latest.tenants) {
    let button = [...minis.children].find((child) => child.dataset.tenant === row.name);
    if (!button) {
      const svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("viewBox", "0 0 100 40");
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      svg.append(document.createElementNS(SVG, "path"), document.createElementNS(SVG, "path"));
      button = make("button", { type: "button", className: "mini" }, svg, make("span", { textContent: row.name }), make("span"));
      button.dataset.tenant = row.name;
      button.addEventListener("click", () => select(row.name));
      minis.append(button);
    }
    button.setAttribute("aria-pressed", row.name === page.selected);
    const plan = page.plans.get(row.name);
    if (!plan?.curve.length) continue;
    const width = widthOf(plan, row.name);
    const place = ([x, y]) => `${((100 * x) / width).toFixed(2)} ${(2 + 36 * (1 - y)).toFixed(2)}`;
    const [curve, stand] = button.querySelectorAll("path");
    curve.setAttribute("d", `M0 2 ${[...plan.curve, [width, plan.curve.at(-1)[1]]].map((point) => `L${place(point)}`).join(" ")}`);
    curve.style.stroke = css(colourOf(row.name));
    const x = ((100 * standOf(row.name)) / width).toFixed(2);
    stand.setAttribute("d", `M${x} 0 L${x} 40`);
    stand.style.stroke = css("--text");
    button.lastChild.textContent = `${bytes(standOf(row.name))}: ${percent(missRatioAt(plan.curve, standOf(row.name)))}`;
  }
}

/** One question each second: the selected tenant's curve and the others' by turns. */
function refreshCurves() {
  if (!page.latest || page.isPaused) return;
  page.turn = (page.turn ?? 0) + 1;
  const names = page.latest.tenants.map((row) => row.name);
  const unknown = names.find((name) => !page.plans.has(name) && !(page.asked ??= new Set()).has(name));
  const next = unknown ?? (page.turn % 2 ? page.selected : names[Math.floor(page.turn / 2) % names.length]);
  if (!next) return;
  page.asked?.add(next);
  loadPlan(next).then(() => { drawCurve(); drawMinis(); }, () => {});
}

function select(tenant) {
  page.selected = tenant;
  page.whatIf = null;
  $("slider").value = 500;
  $("what-if-answer").textContent = HINT;
  draw();
  loadPlan(tenant).then(() => { drawCurve(); drawMinis(); }, () => {});
}

/* ---- All of it ---- */

function draw() {
  if (!page.latest || !page.history) return;
  if (!page.latest.tenants.some((row) => row.name === page.selected)) {
    const most = [...page.latest.tenants].sort((a, b) => b.figures.reads - a.figures.reads)[0];
    page.selected = most?.name ?? null;
  }
  drawState();
  drawTiles();
  drawCharts();
  drawTable();
  drawServers();
  drawCurve();
  drawMinis();
  document.body.dataset.drawn = page.latest.at_ms;
}

function listen() {
  const events = new EventSource("events");
  events.onmessage = (event) => {
    const look = JSON.parse(event.data);
    page.isConnected = true;
    if (page.isPaused) return;
    page.latest = look;
    append(look);
    draw();
  };
  events.onopen = () => loadHistory().then(draw, () => {});
  events.onerror = () => setState("no answer from the tool; trying again", true);
}

const THEMES = ["auto", "light", "dark"];
const stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
function setTheme(theme) {
  page.theme = THEMES.includes(theme) ? theme : "auto";
  const isDark = page.theme === "dark" || (page.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  $("theme").textContent = `Theme: ${page.theme}`;
  try { localStorage.setItem("theme", page.theme); } catch { /* Not kept, then. */ }
  draw();
}

function setPaused(isPaused) {
  page.isPaused = isPaused;
  $("pause").setAttribute("aria-pressed", isPaused);
  $("pause").textContent = isPaused ? "Go on" : "Pause";
  if (!isPaused) loadHistory().then(draw, () => {});
  else if (page.latest) drawState();
}

function setRange(seconds) {
  page.seconds = Number(seconds);
  $("range").value = seconds;
  loadHistory().then(draw, () => {});
}

function move(by) {
  if (!page.order?.length) return;
  const at = page.order.indexOf(page.selected);
  select(page.order[Math.min(Math.max(at + by, 0), page.order.length - 1)]);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open || event.target.matches("input, select")) return;
  const ranges = [...$("range").options].map((option) => option.value);
  const actions = { p: () => setPaused(!page.isPaused), t: () => $("theme").click(), "?": () => $("keys").showModal(), j: () => move(1), k: () => move(-1) };
  const action = actions[event.key] ?? (ranges[event.key - 1] && (() => setRange(ranges[event.key - 1])));
  if (action) {
    event.preventDefault();
    action();
  }
}

$("pause").addEventListener("click", () => setPaused(!page.isPaused));
$("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(page.theme) + 1) % THEMES.length]));
$("help").addEventListener("click", () => $("keys").showModal());
$("range").addEventListener("change", (event) => setRange(event.target.value));
$("slider").addEventListener("input", askWhatIf);
document.addEventListener("keydown", onKey);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(page.theme));
addEventListener("resize", draw);
setInterval(() => { if (page.seconds > LIVE_SECONDS_MAX && !page.isPaused) loadHistory().then(draw, () => {}); }, 10_000);
setInterval(refreshCurves, 1000);
$("what-if-answer").textContent = HINT;
setTheme(stored);
listen();

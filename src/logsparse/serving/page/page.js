// One file -> what is recognised in it, the forecast of one of its series, a backtest, downloads. Nothing is stored:
// the file stays in the memory of this page and is sent with every question.
const $ = (id) => document.getElementById(id);
const COLOURS = { past: ["#475063", "#b9c1cf"], fan: ["31, 95, 191", "122, 170, 255"], second: ["#a8590b", "#f0a95b"], line: ["#dce0e7", "#353b46"],
  ink: ["#1c2430", "#e6e9ef"], card: ["#fff", "#1d2128"] };
const LISTED = 500, FINDINGS = 3, ZOOMS = [0.5, 2, Infinity];
const UNITS = { s: "second", min: "minute", h: "hour", d: "day", B: "business day", w: "week", MS: "month", ME: "month", QS: "quarter", QE: "quarter", YS: "year", YE: "year" };
const narrow = matchMedia("(max-width: 48rem)"), dark = matchMedia("(prefers-color-scheme: dark)"), touch = matchMedia("(pointer: coarse)");
const page = { models: [], ids: [] }, views = {}, jobs = {};
let timer = 0, begun;

const number = (value) => (value == null ? "–" : new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(value));
const count = (value) => value.toLocaleString("en");
const time = (text) => String(text).replace("T", " ").replace(/(\d\d:\d\d):00(?:\.0+)?/, "$1");
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
const address = (path) => new URL(path, document.baseURI);
const card = () => page.models.find((model) => model.name === $("model").value);
const shown = () => String(page.ids[page.shown]);
function say(id, text) { $(id).textContent = text; }
function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// Cancels the requests that had the last signal of this name, and returns the next one.
function signal(name) {
  jobs[name]?.abort();
  return (jobs[name] = new AbortController()).signal;
}
async function ask(path, query = {}, body = null, cancel = undefined) {
  const url = address(path), token = $("token").value.trim(), headers = body ? { "Content-Type": body.type } : {};
  for (const [name, value] of Object.entries(query)) if (value !== "" && value != null) url.searchParams.set(name, value);
  if (token) headers.Authorization = `Bearer ${/^[!-~]+$/.test(token) ? token : "unreadable"}`;
  const answer = await fetch(url, { method: body ? "POST" : "GET", headers, body, signal: cancel, cache: "no-store" }).catch((cause) => {
    throw cause.name === "AbortError" ? cause : new Error("The server does not answer. Hint: see whether it runs, or choose the file again.");
  });
  if (answer.ok) return answer;
  const unknown = { rule: "Every request must be answered.", got: `status ${answer.status}`, hint: "try again." };
  const { error } = await answer.json().catch(() => ({ error: unknown }));
  throw Object.assign(new Error(`${error.rule} Got ${error.got.replace(/\.$/, "")}. Hint: ${error.hint}`), { status: answer.status, field: error.field });
}
const query = (more) => ({ model: page.models.length > 1 ? $("model").value : "", ...Object.fromEntries(new FormData($("columns"))), ...more });
const post = (path, more, cancel) => ask(path, query(more), page.file, cancel);

// Runs a task; its error is shown beside what caused it.
async function attempt(place, task) {
  say(place, "");
  try {
    return await task();
  } catch (problem) {
    if (problem.status === 401) {
      say("token-error", $("token").value ? "This is not the token of the server." : "");
      $("door").hidden = false;
      $("token").focus();
    } else if (problem.name !== "AbortError") say(place, problem.message);
  }
}
const begin = () => (begun = attempt("file-error", async () => {
  Object.assign(page, await (await ask("v1/models")).json());
  [$("door").hidden, $("which").hidden] = [true, page.models.length < 2];
  $("model").replaceChildren(...page.models.map((model) => new Option(model.name)));
  describe();
  return true;
}));
const known = async () => (await begun) || begin(); // a file can come first, or after the question has failed
function describe() {
  const { name, horizon, step, series, trained_until: until, warning, columns } = card(), [, many, unit] = /^(\d*)(.*)$/.exec(step);
  const steps = UNITS[unit] ? `${many ? `steps of ${many} ` : ""}${UNITS[unit]}${many || horizon > 1 ? "s" : ""}` : "steps";
  say("about", `${name} forecasts the next ${horizon} ${steps}. It was trained on ${count(series)} series until ${time(until)}.`);
  say("short", warning ?? "");
  const named = `${columns.slice(0, -1).join(", ")} and ${columns.at(-1)}${columns.length > 3 ? "" : "; or one column per series"}`;
  say("expects", `A csv, parquet or feather file with one row per series and time, and the columns ${named}.`);
}

// A file, and what is recognised in it.
function open(blob, name, example = false) {
  // The server recognises other formats by their first bytes.
  const type = /\.(csv|tsv|txt)$/i.test(name) ? "text/csv" : "application/octet-stream";
  Object.assign(page, { file: new Blob([blob], { type }), name, example });
  return read();
}
async function read() {
  const cancel = signal("read");
  for (const name of ["show", "look", "test"]) signal(name);
  Object.assign(page, { past: null, tested: null, shown: null, scored: null });
  $("found").hidden = $("work").hidden = true;
  for (const field of $("columns").elements) field.ariaInvalid = null;
  say("busy", `Reading ${page.name} …`);
  const found = (await known()) && await attempt("file-error", async () => {
    const rule = `A file must have at most ${count(page.max_body)} bytes. Got ${count(page.file.size)}.`;
    if (page.file.size > page.max_body) throw new Error(`${rule} Hint: send fewer series or a shorter past, or parquet instead of csv.`);
    return (await post("v1/check", {}, cancel).catch((problem) => {
      const blamed = ({ name }) => name && (name === problem.field || new RegExp(`\\b${name}\\b`).test(problem.message));
      for (const field of [...$("columns").elements].filter(blamed)) $("options").open = field.ariaInvalid = "true";
      throw problem;
    })).json();
  });
  if (cancel.aborted) return;
  say("busy", "");
  say("drop-title", found ? `${page.name}${page.example ? ": made-up values" : ""}` : "Drop a file with your series here");
  $("found").hidden = !document.body.classList.toggle("read", Boolean(found));
  $("work").hidden = !found?.fits;
  if (!found) return;
  if (![...new FormData($("columns")).values()].some(Boolean)) $("options").open = false;
  Object.assign(page, { check: found, ids: found.data.ids });
  [$("search").value, $("step").value] = ["", 1];
  recognised(found);
  if (found.fits) for (const part of [list, commands, choose]) part(0);
}
function recognised({ rows, summary, findings, fits }) {
  say("found-title", fits ? "Recognised" : "Recognised, but this model cannot forecast it");
  $("rows").replaceChildren(...rows.map(([label, text]) => element("div", {}, element("dt", {}, label), element("dd", {}, text))));
  say("summary", `Health: ${summary}.`);
  const kinds = {}, few = findings.filter(({ kind }) => (kinds[kind] = (kinds[kind] ?? 0) + 1) <= FINDINGS);
  const items = few.map(({ severity, kind, series, text }) =>
    element("li", {}, element("span", { className: severity }, `${severity}: ${kind}`), `${series == null ? "" : `${series}: `}${text}`));
  for (const [kind, all] of Object.entries(kinds)) if (all > FINDINGS) items.push(element("li", {}, `and ${count(all - FINDINGS)} more: ${kind}`));
  $("findings").replaceChildren(...items);
  $("findings").hidden = !items.length;
}

// The list of series.
function list() {
  const wanted = $("search").value.trim().toLowerCase(), bad = new Set(page.check.bad);
  const found = [...page.ids.keys()].filter((place) => String(page.ids[place]).toLowerCase().includes(wanted));
  const options = found.slice(0, LISTED).map((place) => new Option(`${page.ids[place]}${bad.has(page.ids[place]) ? " (bad)" : ""}`, place));
  $("series").replaceChildren(...options);
  $("series").value = page.shown ?? "";
  say("count", `${count(found.length)} of ${count(page.ids.length)} series${found.length > LISTED ? `; the first ${LISTED} are listed` : ""}`);
}
function choose(place) {
  page.shown = place;
  $("series").value = place;
  say("name", shown());
  const { selectedIndex: at, length } = $("series");
  [$("before").disabled, $("after").disabled] = [at <= 0, at >= length - 1];
  clearTimeout(timer); // whoever holds an arrow key passes many series
  timer = setTimeout(() => { show(); if (!$("backtest").hidden) test(); }, page.past ? 120 : 0);
}
function move(by) {
  const place = $("series").options[$("series").selectedIndex + by]?.value;
  if (place) choose(Number(place));
}

// The forecast of one series.
async function show() {
  const cancel = signal("show"), series = shown();
  signal("look");
  $("fan").classList.add("waiting");
  page.tested = page.attention = null;
  const past = await attempt("forecast-error", async () => {
    const answers = [post("v1/check", { series, last: 10_000 }, cancel), post("v1/forecast", { series, format: "json" }, cancel)];
    const [check, rows] = await Promise.all(answers.map(async (answer) => (await answer).json()));
    return { series, ...check.history, steps: forecastOf(rows) };
  });
  if (cancel.aborted) return;
  $("fan").classList.remove("waiting");
  $("forecast-parts").hidden = !(page.past = past);
  if (!past) return;
  const { times, median, mean, wide } = past.steps;
  const band = wide ? `, 80 % between ${number(wide[0][0])} and ${number(wide[1][0])}` : "";
  const little = past.times.length < card().context ? ` The history has ${past.times.length} steps; with fewer than ${card().context} the forecast is less accurate.` : "";
  say("next", `Next step, ${time(times[0])}: median ${number(median[0])}${band}.${little}`);
  const columns = [median, ...(wide ?? []), mean], heads = ["time", "median", ...(wide ? ["10 %", "90 %"] : []), "mean"];
  table("values", heads, times.map((when, row) => [time(when), ...columns.map((column) => number(column[row]))]));
  $("step").max = times.length;
  drawFan();
  drawPast();
  await look();
}
function forecastOf(rows) {
  const keys = Object.keys(rows[0]), column = (name) => rows.map((row) => row[name]);
  const levels = keys.filter((name) => /^q0?\.\d+$/.test(name)).sort((a, b) => a.slice(1) - b.slice(1));
  const bands = levels.slice(0, levels.length / 2).map((low, place) => [column(low), column(levels.at(-1 - place))]);
  return { times: column(keys[1]), mean: column("mean"), median: column(levels.includes("q0.5") ? "q0.5" : "mean"), bands,
    wide: levels.includes("q0.1") && levels.includes("q0.9") ? [column("q0.1"), column("q0.9")] : null };
}
async function look() {
  const cancel = signal("look"), step = $("step").value;
  say("caption", "");
  page.attention = await attempt("look-error", async () => {
    if (!card().attention) throw new Error(`${card().kind} has no attention that could show what the forecast looked at.`);
    return (await post("v1/attention", { series: shown(), step: step - 1 }, cancel)).json();
  });
  if (cancel.aborted) return;
  if (page.attention) say("caption", `Bars under the history: what the forecast looked at (${page.attention.what}); ${page.attention.caption}.`);
  $("step-of").hidden = !page.attention && step === "1";
  drawFan();
}
function table(place, heads, rows) {
  const body = rows.map(([first, ...cells]) =>
    element("tr", {}, element("th", { scope: "row" }, first), ...cells.map((text) => element("td", {}, text))));
  const top = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  $(place).replaceChildren(element("table", {}, element("thead", {}, top), element("tbody", {}, ...body)));
}

// Charts.
const colour = (name) => COLOURS[name][Number(dark.matches)];
function line(name, x, y, style, more = {}) {
  const mode = x.length > 1 ? "lines" : "markers", hovertemplate = `${name} %{y:.4~g}<extra></extra>`;
  return { name, x, y, type: "scatter", mode, line: style, legendgroup: name, hovertemplate, ...more };
}
function fan(times, median, bands, wide, showlegend = true) {
  const edges = bands.flatMap(([low, high], place) => {
    const more = { hovertemplate: null, hoverinfo: "skip", showlegend: false };
    const fill = { fill: "tonexty", fillcolor: `rgba(${colour("fan")}, ${place ? 0.12 : 0.22})`, showlegend: showlegend && !place };
    return [line("80 % band", times, high, { width: 0 }, more), line("80 % band", times, low, { width: 0 }, { ...more, ...fill })];
  });
  const customdata = wide ? median.map((_, row) => [wide[0][row], wide[1][row]]) : [];
  const hovertemplate = `median %{y:.4~g}${wide ? "<br>80 %: %{customdata[0]:.4~g} to %{customdata[1]:.4~g}" : ""}<extra></extra>`;
  return [...edges, line("median", times, median, { color: `rgb(${colour("fan")})`, width: 2.2 }, { customdata, hovertemplate, showlegend })];
}
function drawFan() {
  if (!page.past || $("forecast").hidden) return;
  const { past: { times, values, steps, series }, attention } = page;
  const traces = [line("history", times, values, { color: colour("past"), width: 1.3 }), ...fan(steps.times, steps.median, steps.bands, steps.wide)];
  const bars = { name: "attention", type: "bar", yaxis: "y2", marker: { color: colour("second") }, hovertemplate: "attention %{y:.1%}<extra></extra>" };
  if (attention) traces.push({ ...bars, x: attention.times, y: attention.weights });
  const ends = steps.wide ?? [steps.median, steps.median];
  const points = [...times.map((x, row) => [x, values[row]]), ...steps.times.map((x, row) => [x, ends[0][row], ends[1][row]])];
  draw("fan", traces, points, Math.max(5 * steps.times.length, 3 * page.check.data.season), series, attention);
  $("fan").setAttribute("aria-label", `History and forecast of ${series}; the table below has the values.`);
}
function draw(id, traces, points, usual, series, split) {
  const view = (views[id] = { points, series, width: views[id]?.series === series ? views[id].width : usual });
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zeroline: false, automargin: true };
  const layout = { margin: { l: 46, r: 8, t: 30, b: 32 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent", uirevision: series,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") }, hovermode: "x unified",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } }, dragmode: touch.matches ? false : "zoom",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, itemclick: false, itemdoubleclick: false },
    xaxis: { ...axis, ...ranges(view).x, showgrid: false, anchor: split ? "y2" : "y" },
    yaxis: { ...axis, ...ranges(view).y, domain: [split ? 0.27 : 0, 1] } };
  if (split) layout.yaxis2 = { ...axis, domain: [0, 0.19], tickformat: ".0%", nticks: 3, rangemode: "tozero", fixedrange: true };
  Plotly.react($(id), traces, layout, { responsive: true, displayModeBar: false });
}

// The last steps, as many as the view is wide, and room for all their values.
function ranges({ points, width }) {
  const part = points.slice(-Math.max(2, Math.round(width))), seen = part.flatMap((point) => point.slice(1)).filter((value) => value != null);
  const [low, high] = seen.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  const room = 0.06 * (high - low || Math.abs(high) || 1);
  return { x: { range: [part[0][0], part.at(-1)[0]] }, y: seen.length ? { range: [low - room, high + room] } : {} };
}
function zoom(id, factor) {
  const view = views[id];
  if (!view) return;
  view.width = Math.min(view.points.length, Math.max(6, view.width * factor));
  Plotly.relayout($(id), { "xaxis.range": ranges(view).x.range, "yaxis.range": ranges(view).y.range });
}

// The backtest.
async function test() {
  // The scores of all series are the same whichever is shown: they are computed once.
  const cancel = signal("test"), series = shown(), windows = $("windows").value, alone = page.scored === windows;
  $("past").classList.add("waiting");
  if (!alone) say("verdict", "Forecasting the past …");
  const found = await attempt("backtest-error", async () => (await post("v1/backtest", { series, windows, alone }, cancel)).json());
  if (cancel.aborted) return;
  $("past").classList.remove("waiting");
  $("past").hidden = $("scores").hidden = !found;
  if (!alone || !found) say("verdict", found?.summary ?? "");
  Object.assign(page, { scored: found && windows, tested: found && { ...found, of: series } });
  const heads = ["All series", ...(found?.scores ?? []).map((row) => row.model.replace("_", " "))];
  if (found && !alone) table("scores", heads, found.rows.map(([label, ...values]) => [label, ...values.map(number)]));
  drawPast();
}
function drawPast() {
  const { tested, past } = page;
  if (!tested || $("backtest").hidden || past?.series !== tested.of) return;
  const points = new Map(past.times.map((x, row) => [x, [x, past.values[row]]]));
  const traces = [line("actual", past.times, past.values, { color: colour("past"), width: 1.3 })];
  tested.series.forEach(({ times, quantiles, seasonal_naive: naive }, place) => {
    const wide = quantiles["0.1"] ? [quantiles["0.1"], quantiles["0.9"]] : null, median = quantiles["0.5"];
    traces.push(...fan(times, median, wide ? [wide] : [], wide, !place));
    traces.push(line("seasonal naive", times, naive, { color: colour("second"), width: 1.5, dash: "dot" }, { showlegend: !place }));
    times.forEach((x, row) => points.get(x)?.push(...(wide ?? [median]).map((column) => column[row])));
  });
  const width = 1.3 * (past.times.length - past.times.indexOf(tested.series[0].times[0]));
  draw("past", traces, [...points.values()], width, `${tested.of} ${tested.windows}`, false);
  $("past").setAttribute("aria-label", `Past forecasts of ${tested.of} beside the actual values; the table below has the scores of all series.`);
}

// Downloads and commands.
const download = (kind) => attempt("take-error", async () => {
  const url = URL.createObjectURL(await (await post("v1/forecast", { format: kind })).blob());
  element("a", { href: url, download: `forecast.${kind}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
});
function commands() {
  const { name, covariates } = card(), file = quoted(page.name), secret = $("token").value ? '-H "Authorization: Bearer $TOKEN" ' : "";
  const given = Object.entries(query({ format: "csv" })).filter(([, value]) => value);
  const lines = page.example ? [`curl ${secret}${quoted(address(`v1/models/${encodeURIComponent(name)}/example`).href)} -o ${file}`] : [];
  // `predict` reads the columns of the model, and the future of covariates from another file.
  const plain = !covariates.length && given.every(([key]) => key === "model" || key === "format");
  if (plain) lines.push(`logsparse predict ${quoted(name)} ${file} -o forecast.csv`);
  lines.push(`curl ${secret}--data-binary ${quoted(`@${page.name}`)} '${address(`v1/forecast?${new URLSearchParams(given)}`)}' -o forecast.csv`);
  say("command", lines.join("\n"));
}

// What people do.
const on = (id, event, action) => $(id).addEventListener(event, action);
function select(tab) {
  for (const one of document.querySelectorAll("[role=tab]")) {
    one.setAttribute("aria-selected", one === tab);
    one.tabIndex = one === tab ? 0 : -1;
    $(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
  tab.focus();
  if (tab.id === "tab-forecast") drawFan(); else if (page.tested) drawPast(); else test();
}
for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.onclick = () => select(tab);
  tab.onkeydown = ({ key }) => { if (key === "ArrowLeft" || key === "ArrowRight") select(tab.nextElementSibling ?? tab.previousElementSibling); };
}
for (const { dataset, children } of document.querySelectorAll("[data-chart]")) ZOOMS.forEach((by, place) => { children[place].onclick = () => zoom(dataset.chart, by); });
on("door", "submit", async (event) => { event.preventDefault(); await begin(); if (page.file && $("door").hidden) read(); });
on("columns", "submit", (event) => { event.preventDefault(); if (page.file) read(); else say("file-error", "Choose a file first."); });
on("model", "change", () => { describe(); if (page.example) $("example").click(); else if (page.file) read(); });
on("file", "change", () => { const [file] = $("file").files; if (file) open(file, file.name).then(() => { $("file").value = ""; }); });
on("example", "click", async () => (await known()) && attempt("file-error", async () => {
  $("columns").reset();
  await open(await (await ask(`v1/models/${encodeURIComponent($("model").value)}/example`)).blob(), "example.parquet", true);
}));
document.ondragover = (event) => { event.preventDefault(); $("drop").classList.add("over"); };
document.ondragleave = (event) => { if (!event.relatedTarget) $("drop").classList.remove("over"); };
document.ondrop = (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  const { files: [file, ...more] } = event.dataTransfer;
  if (file && !more.length) open(file, file.name); else say("file-error", `Drop one file. Got ${file ? more.length + 1 : "none"}.`);
};
on("search", "input", () => { list(); if ($("series").selectedIndex < 0 && $("series").length) choose(Number($("series").options[0].value)); });
on("search", "keydown", (event) => { const by = { ArrowDown: 1, ArrowUp: -1 }[event.key]; if (by) { event.preventDefault(); move(by); } });
on("series", "change", () => choose(Number($("series").value)));
for (const [id, by] of [["before", -1], ["after", 1]]) on(id, "click", () => move(by));
for (const [id, action] of [["step", look], ["windows", test]]) on(id, "change", action);
for (const kind of ["csv", "parquet"]) on(kind, "click", () => download(kind));
dark.onchange = () => { drawFan(); drawPast(); };
(narrow.onchange = () => { $("series").size = narrow.matches ? 1 : 12; })();
begin();

// One file -> what is recognised in it, the forecast of one of its series, a backtest, downloads. Nothing is stored:
// the file stays in the memory of this page and is sent with every question.
const $ = (id) => document.getElementById(id);
const TYPES = { csv: "text/csv", tsv: "text/csv", txt: "text/csv", json: "application/json",
  parquet: "application/vnd.apache.parquet", feather: "application/vnd.apache.arrow.file", arrow: "application/vnd.apache.arrow.file" };
const LISTED = 500, FINDINGS = 50;
const narrow = matchMedia("(max-width: 48rem)"), dark = matchMedia("(prefers-color-scheme: dark)"), touch = matchMedia("(pointer: coarse)");
const page = { models: [], most: Infinity, file: null, name: "", example: false, check: null, ids: [], shown: null, past: null, attention: null, tested: null };
const views = {};
let reading = new AbortController(), showing = new AbortController(), testing = new AbortController(), timer = 0;

const number = (value) => (value == null ? "–" : new Intl.NumberFormat("en", { maximumSignificantDigits: 5 }).format(value));
const time = (text) => String(text).replace("T", " ").replace(/(\d\d:\d\d):00(?:\.0+)?/, "$1");
const element = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
const say = (id, text) => { $(id).textContent = text; };

async function ask(path, { query = {}, body = null, signal } = {}) {
  const url = new URL(path, document.baseURI), token = $("token").value.trim();
  for (const [name, value] of Object.entries(query)) if (value !== "" && value != null) url.searchParams.set(name, value);
  const headers = body ? { "Content-Type": body.type } : {};
  if (token) headers.Authorization = `Bearer ${encodeURI(token) === token ? token : "unreadable"}`;
  let answer;
  try {
    answer = await fetch(url, { method: body ? "POST" : "GET", headers, body, signal, cache: "no-store" });
  } catch (cause) {
    if (cause.name === "AbortError") throw cause;
    throw new Error("The server does not answer: it has ended, or the connection is lost, or the file cannot be read any more. Try again.");
  }
  if (answer.ok) return answer;
  const error = (await answer.json().catch(() => ({}))).error ?? { rule: `The server answers ${answer.status}.`, got: "no reason", hint: "try again." };
  const problem = new Error(`${error.rule} Got ${error.got.replace(/\.$/, "")}. Hint: ${error.hint}`);
  throw Object.assign(problem, { status: answer.status, field: error.field });
}

// Runs a task; its error is shown beside what caused it.
async function attempt(place, task) {
  say(place, "");
  try {
    return await task();
  } catch (problem) {
    if (problem.name === "AbortError") return undefined;
    if (problem.status === 401) openDoor(); else say(place, problem.message);
    return undefined;
  }
}

function query(more = {}) {
  return { model: page.models.length > 1 ? $("model").value : "", ...Object.fromEntries(new FormData($("columns"))), ...more };
}

const card = () => page.models.find((model) => model.name === $("model").value);
const post = (path, more, signal) => ask(path, { query: query(more), body: page.file, signal });

// The server, its models and its token.
function openDoor() {
  say("token-error", $("token").value ? "This is not the token of the server." : "");
  $("door").hidden = false;
  $("token").focus();
}

async function begin() {
  await attempt("file-error", async () => {
    const { models, max_body: most } = await (await ask("v1/models")).json();
    Object.assign(page, { models, most });
    $("door").hidden = true;
    $("model").replaceChildren(...models.map((model) => element("option", model.name)));
    $("which").hidden = models.length < 2;
    describe();
  });
}

function describe() {
  const { name, horizon, step, series, trained_until: until, warning } = card();
  say("about", `${page.models.length > 1 ? "It" : name} forecasts ${horizon} steps of ${step}; trained on ${series.toLocaleString("en")} series until ${time(until)}. ${warning ?? ""}`);
}

// A file, and what is recognised in it.
async function open(blob, name, example = false) {
  const kind = TYPES[name.split(".").pop().toLowerCase()] ?? "application/octet-stream";
  Object.assign(page, { file: new Blob([blob], { type: kind }), name, example });
  await read();
}

async function read() {
  for (const control of [reading, showing, testing]) control.abort();
  reading = new AbortController();
  Object.assign(page, { check: null, past: null, attention: null, tested: null, shown: null });
  document.body.classList.remove("read");
  $("found").hidden = $("work").hidden = true;
  for (const field of $("columns").elements) field.removeAttribute("aria-invalid");
  const found = await attempt("file-error", async () => {
    if (page.file.size > page.most) throw new Error(`A file must have at most ${page.most.toLocaleString("en")} bytes. Got ${page.file.size.toLocaleString("en")}. Hint: send fewer series or a shorter past, or parquet instead of csv.`);
    say("busy", `Reading ${page.name} …`);
    try {
      return await (await post("v1/check", {}, reading.signal)).json();
    } catch (problem) {
      if (problem.field && $("columns").elements[problem.field]) $("columns").elements[problem.field].setAttribute("aria-invalid", "true");
      if (/\b(id_col|time_col|target_col|freq|tz|time_format|dayfirst)\b/.test(problem.message)) $("options").open = true;
      throw problem;
    }
  });
  say("busy", "");
  say("drop-title", found ? page.name : "Drop a file with your series here");
  if (!found) return;
  Object.assign(page, { check: found, ids: found.data.ids });
  document.body.classList.add("read");
  recognised(found);
  $("search").value = "";
  list();
  commands();
  $("found").hidden = $("work").hidden = false;
  choose(0);
}

function recognised({ rows, summary, findings, fits }) {
  say("found-title", fits ? "Recognised" : "Recognised, but this model cannot forecast it");
  $("rows").replaceChildren(...rows.map(([label, text]) => {
    const row = element("div", "");
    row.append(element("dt", label), element("dd", text));
    return row;
  }));
  say("summary", `Health: ${summary}.`);
  const items = findings.slice(0, FINDINGS).map(({ severity, kind, series, text }) => {
    const item = element("li", "");
    item.append(element("span", `${severity}: ${kind}`, { className: severity }), `${series == null ? "" : `${series}: `}${text}`);
    return item;
  });
  if (findings.length > FINDINGS) items.push(element("li", `and ${(findings.length - FINDINGS).toLocaleString("en")} more`));
  $("findings").replaceChildren(...items);
  $("findings").hidden = !items.length;
  $("findings").tabIndex = items.length > 5 ? 0 : -1;
}

// The list of series.
function list() {
  const wanted = $("search").value.trim().toLowerCase(), found = [];
  page.ids.forEach((id, place) => { if (String(id).toLowerCase().includes(wanted)) found.push(place); });
  $("series").replaceChildren(...found.slice(0, LISTED).map((place) => new Option(page.ids[place], place)));
  $("series").value = page.shown ?? "";
  const more = found.length > LISTED ? `; the first ${LISTED} are listed` : "";
  say("count", `${found.length.toLocaleString("en")} of ${page.ids.length.toLocaleString("en")} series${more}`);
}

function choose(place) {
  page.shown = place;
  $("series").value = place;
  say("name", page.ids[place]);
  const at = $("series").selectedIndex;
  $("before").disabled = at <= 0;
  $("after").disabled = at < 0 || at >= $("series").length - 1;
  // Whoever holds an arrow key passes many series.
  clearTimeout(timer);
  timer = setTimeout(() => { show(); if (!$("backtest").hidden) test(); }, page.past ? 120 : 0);
}

function step(by) {
  const option = $("series").options[$("series").selectedIndex + by];
  if (option) choose(Number(option.value));
}

// The forecast of one series.
async function show() {
  showing.abort();
  showing = new AbortController();
  const { signal } = showing, series = String(page.ids[page.shown]);
  $("fan").classList.add("waiting");
  page.tested = null;
  const past = await attempt("forecast-error", async () => {
    const [check, rows] = await Promise.all([
      post("v1/check", { series }, signal), post("v1/forecast", { series, format: "json" }, signal),
    ].map(async (answer) => (await answer).json()));
    return { series, ...check.history, steps: forecastOf(rows) };
  });
  if (signal.aborted) return;
  $("fan").classList.remove("waiting");
  Object.assign(page, { past: past ?? null, attention: null });
  for (const id of ["fan", "values"]) $(id).hidden = !past;
  if (!past) { say("next", ""); say("caption", ""); return; }
  $("step").max = past.steps.times.length;
  drawFan();
  tabulate(past.steps);
  await look();
}

function forecastOf(rows) {
  const [, when] = Object.keys(rows[0]);
  const names = Object.keys(rows[0]).filter((name) => /^q0?\.\d+$/.test(name)).sort((a, b) => a.slice(1) - b.slice(1));
  const column = (name) => rows.map((row) => row[name]);
  const bands = names.slice(0, Math.floor(names.length / 2)).map((low, place) => [column(low), column(names[names.length - 1 - place])]);
  const wide = names.includes("q0.1") && names.includes("q0.9") ? [column("q0.1"), column("q0.9")] : null;
  return { times: column(when), mean: column("mean"), median: column(names.includes("q0.5") ? "q0.5" : "mean"), bands, wide };
}

async function look() {
  const { signal } = showing, series = String(page.ids[page.shown]);
  try {
    page.attention = await (await post("v1/attention", { series, step: $("step").value - 1 }, signal)).json();
    say("caption", `Bars below the history: what step ${$("step").value} of the forecast looked at (${page.attention.what}). ${page.attention.caption}`);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    page.attention = null;
    say("caption", problem.message);
  }
  $("step-of").hidden = !page.attention && $("step").value === "1";
  drawFan();
}

function tabulate({ times, median, mean, wide }) {
  const heads = ["time", "median", ...(wide ? ["10 %", "90 %"] : []), "mean"];
  const columns = [median, ...(wide ?? []), mean];
  table("values", heads, times.map((when, row) => [time(when), ...columns.map((column) => number(column[row]))]));
  const band = wide ? `, 80 % between ${number(wide[0][0])} and ${number(wide[1][0])}` : "";
  say("next", `Next step, ${time(times[0])}: median ${number(median[0])}${band}.`);
}

function table(place, heads, rows) {
  const top = element("tr", ""), body = element("tbody", ""), head = element("thead", ""), whole = element("table", "");
  top.append(...heads.map((text) => element("th", text, { scope: "col" })));
  head.append(top);
  body.append(...rows.map((cells) => {
    const row = element("tr", "");
    row.append(...cells.map((text) => element("td", text)));
    return row;
  }));
  whole.append(head, body);
  $(place).replaceChildren(whole);
}

// Charts.
function colours() {
  const css = getComputedStyle(document.documentElement);
  return (name) => css.getPropertyValue(`--${name}`).trim();
}

function fanOf(colour, times, bands, first = true) {
  return bands.flatMap(([low, high], place) => {
    const edge = { x: times, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: "band" };
    const fill = `rgba(${colour("fan")}, ${bands.length > 1 ? 0.13 : 0.22})`;
    return [{ ...edge, y: high }, { ...edge, y: low, fill: "tonexty", fillcolor: fill, name: "80 % band", showlegend: first && place === 0 }];
  });
}

function medianOf(colour, times, median, wide, first = true) {
  const band = wide ? "<br>80 %: %{customdata[0]:.5~g} to %{customdata[1]:.5~g}" : "";
  return { x: times, y: median, customdata: wide ? median.map((_, row) => [wide[0][row], wide[1][row]]) : undefined, name: "median",
    type: "scatter", mode: median.length > 1 ? "lines" : "markers", line: { color: `rgb(${colour("fan")})`, width: 2.2 },
    hovertemplate: `median %{y:.5~g}${band}<extra></extra>`, legendgroup: "median", showlegend: first };
}

function pastOf(colour, times, values, name) {
  return { x: times, y: values, name, type: "scatter", mode: values.length > 1 ? "lines" : "markers", line: { color: colour("past"), width: 1.3 }, hovertemplate: `${name} %{y:.5~g}<extra></extra>` };
}

function drawFan() {
  if (!page.past || $("forecast").hidden) return;
  const { times, values, steps, series } = page.past, colour = colours(), { attention } = page;
  const traces = [pastOf(colour, times, values, "history"), ...fanOf(colour, steps.times, steps.bands), medianOf(colour, steps.times, steps.median, steps.wide)];
  if (attention) traces.push({ x: attention.times, y: attention.weights, name: "attention", type: "bar", yaxis: "y2", marker: { color: colour("naive"), line: { width: 0 } }, hovertemplate: "attention %{y:.1%}<extra></extra>" });
  const [low, high] = steps.wide ?? [steps.median, steps.median];
  const points = [...times.map((x, row) => [x, values[row], values[row]]), ...steps.times.map((x, row) => [x, low[row], high[row]])];
  draw("fan", traces, points, Math.max(5 * steps.times.length, 3 * page.check.data.season), series, attention);
  $("fan").setAttribute("aria-label", `History and forecast of ${series}; the table below has the values.`);
}

function draw(id, traces, points, width, series, split) {
  const colour = colours(), axis = { gridcolor: colour("line"), zeroline: false, linecolor: colour("line"), automargin: true };
  const now = (views[id] = { points, usual: width, width: views[id]?.series === series ? views[id].width : width, series });
  const layout = { margin: { l: 46, r: 8, t: 30, b: 32 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", bargap: 0.1,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") }, hovermode: "x unified", uirevision: series,
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, itemclick: false, itemdoubleclick: false }, dragmode: touch.matches ? false : "zoom",
    xaxis: { ...axis, showgrid: false, range: across(now), anchor: split ? "y2" : "y" }, yaxis: { ...axis, range: along(now), domain: split ? [0.27, 1] : [0, 1] } };
  if (split) layout.yaxis2 = { ...axis, domain: [0, 0.19], tickformat: ".0%", nticks: 3, rangemode: "tozero", fixedrange: true };
  const bar = { displaylogo: false, responsive: true, displayModeBar: touch.matches ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "toImage"] };
  return Plotly.react($(id), traces, layout, bar);
}

const part = ({ points, width }) => points.slice(-Math.max(2, Math.min(points.length, Math.round(width))));
const across = (view) => [part(view)[0][0], part(view).at(-1)[0]];
function along(view) {
  const seen = part(view).flatMap(([, low, high]) => [low, high]).filter((value) => value != null);
  const [low, high] = seen.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  const room = 0.06 * (high - low || Math.abs(high) || 1);
  return seen.length ? [low - room, high + room] : undefined;
}

function zoom(id, factor) {
  const view = views[id];
  if (!view) return;
  view.width = factor ? Math.min(view.points.length, Math.max(6, view.width * factor)) : view.points.length;
  Plotly.relayout($(id), { "xaxis.range": across(view), "yaxis.range": along(view) });
}

// The backtest.
async function test() {
  testing.abort();
  testing = new AbortController();
  const { signal } = testing, series = String(page.ids[page.shown]);
  $("past").classList.add("waiting");
  say("verdict", "Forecasting the past …");
  const found = await attempt("backtest-error", async () => (await post("v1/backtest", { series, windows: $("windows").value }, signal)).json());
  if (signal.aborted) return;
  $("past").classList.remove("waiting");
  page.tested = found ? { ...found, shown: page.shown } : null;
  $("past").hidden = $("scores").hidden = !found;
  say("verdict", found ? verdict(found) : "");
  if (!found) return;
  const names = Object.keys(found.scores[0]).filter((name) => name !== "model" && found.scores.some((row) => row[name] != null));
  table("scores", ["", ...found.scores.map((row) => row.model.replace("_", " "))], names.map((name) => [name, ...found.scores.map((row) => number(row[name]))]));
  drawPast();
}

function verdict({ coverage, seen, windows }) {
  const inside = coverage == null ? "" : `${(100 * coverage).toFixed(0)} % of the actual values lie in the 80 % band. `;
  return `${page.ids.length.toLocaleString("en")} series at ${windows} cutoff${windows > 1 ? "s" : ""}: ${inside}${seen ? "The model was trained on some of these values, so its scores are too good." : "The model was not trained on these values."}`;
}

function drawPast() {
  if (!page.tested?.series.length || $("backtest").hidden || page.tested.shown !== page.shown) return;
  const colour = colours(), { series: windows } = page.tested, first = windows[0].times[0], tested = windows.flatMap((one) => one.times);
  const known = page.past?.times ?? tested, values = page.past?.values ?? windows.flatMap((one) => one.actual);
  const traces = [pastOf(colour, known, values, "actual")];
  const points = known.map((x, row) => [x, values[row], values[row]]), bounds = new Map();
  windows.forEach(({ times, quantiles, seasonal_naive: naive }, place) => {
    const wide = quantiles["0.1"] ? [quantiles["0.1"], quantiles["0.9"]] : null, median = quantiles["0.5"];
    traces.push(...fanOf(colour, times, wide ? [wide] : [], place === 0), medianOf(colour, times, median, wide, place === 0));
    traces.push({ x: times, y: naive, name: "seasonal naive", type: "scatter", mode: "lines", line: { color: colour("naive"), width: 1.4, dash: "dot" }, legendgroup: "naive", showlegend: place === 0, hovertemplate: "seasonal naive %{y:.5~g}<extra></extra>" });
    times.forEach((x, row) => bounds.set(x, [(wide?.[0] ?? median)[row], (wide?.[1] ?? median)[row]]));
  });
  points.forEach((point) => { const [low, high] = bounds.get(point[0]) ?? point.slice(1); point.push(Math.min(low, point[1] ?? low), Math.max(high, point[1] ?? high)); point.splice(1, 2); });
  const begin = Math.max(0, known.indexOf(first)), id = String(page.ids[page.shown]);
  draw("past", traces, points, Math.round(1.3 * (known.length - begin)), `${id} ${windows.length}`, false);
  $("past").setAttribute("aria-label", `Past forecasts of ${id} beside the actual values and seasonal naive; the table below has the scores of all series.`);
}

// Downloads and commands.
async function download(kind) {
  await attempt("take-error", async () => {
    $(kind).disabled = true;
    try {
      const url = URL.createObjectURL(await (await post("v1/forecast", { format: kind })).blob());
      element("a", "", { href: url, download: `forecast.${kind}` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } finally {
      $(kind).disabled = false;
    }
  });
}

function commands() {
  const given = Object.entries(query({ format: "csv" })).filter(([, value]) => value), { name, covariates } = card();
  const secret = $("token").value ? '-H "Authorization: Bearer $TOKEN" ' : "", file = quoted(page.name);
  const url = new URL(`v1/forecast?${new URLSearchParams(given)}`, document.baseURI).href;
  const lines = page.example ? [`curl ${secret}${quoted(new URL(`v1/models/${encodeURIComponent(name)}/example`, document.baseURI).href)} -o ${file}`] : [];
  // The command reads a file with the columns of the model, and the future of covariates from a file of its own.
  const plain = !covariates.length && given.every(([key]) => key === "model" || key === "format");
  if (plain) lines.push(`logsparse predict ${quoted(name)} ${file} -o forecast.csv`);
  say("command", [...lines, `curl ${secret}--data-binary ${quoted(`@${page.name}`)} '${url}' -o forecast.csv`].join("\n"));
}

// What people do.
function select(tab) {
  for (const one of document.querySelectorAll("[role=tab]")) {
    one.setAttribute("aria-selected", one === tab);
    one.tabIndex = one === tab ? 0 : -1;
    $(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
  if (tab.id === "tab-forecast") drawFan(); else if (page.tested?.shown === page.shown) drawPast(); else test();
}

for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    const other = tab.nextElementSibling ?? tab.previousElementSibling;
    other.focus();
    select(other);
  });
}
document.querySelectorAll(".zoom").forEach((place, number_) => {
  const id = ["fan", "past"][number_];
  for (const [text, factor] of [["Zoom in", 0.5], ["Zoom out", 2], ["All", 0]]) place.append(element("button", text, { type: "button", onclick: () => zoom(id, factor) }));
});
$("door").addEventListener("submit", (event) => { event.preventDefault(); begin().then(() => { if (page.file && $("door").hidden) read(); }); });
$("columns").addEventListener("submit", (event) => { event.preventDefault(); if (page.file) read(); else say("file-error", "Choose a file first."); });
$("model").addEventListener("change", () => { describe(); if (page.example) $("example").click(); else if (page.file) read(); });
$("file").addEventListener("change", () => { const [file] = $("file").files; if (file) open(file, file.name); $("file").value = ""; });
$("example").addEventListener("click", () => attempt("file-error", async () => {
  $("columns").reset();
  await open(await (await ask(`v1/models/${encodeURIComponent($("model").value)}/example`)).blob(), "example.parquet", true);
}));
document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").classList.remove("over"); });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  const { files } = event.dataTransfer;
  if (files.length === 1) open(files[0], files[0].name); else say("file-error", `Drop one file. Got ${files.length}.`);
});
$("search").addEventListener("input", () => { list(); if ($("series").selectedIndex < 0 && $("series").length) choose(Number($("series").options[0].value)); });
$("search").addEventListener("keydown", (event) => { if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); step(event.key === "ArrowDown" ? 1 : -1); } });
$("series").addEventListener("change", () => choose(Number($("series").value)));
$("before").addEventListener("click", () => step(-1));
$("after").addEventListener("click", () => step(1));
$("step").addEventListener("change", look);
$("windows").addEventListener("change", test);
for (const kind of ["csv", "parquet"]) $(kind).addEventListener("click", () => download(kind));
dark.addEventListener("change", () => { drawFan(); drawPast(); });
const fit = () => { $("series").size = narrow.matches ? 1 : 12; };
narrow.addEventListener("change", fit);
fit();
begin();

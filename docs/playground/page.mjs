// The form of the playground: asks a worker, and sets its answers as text. The state is in the address, after `#`.
const form = document.getElementById("playground");
const fields = ["input", "other", "select", "assume", "direction", "to", "port", "source", "user", "container", "udp"];
const connection = ["to", "port", "source"];
const status = form.querySelector("[role=status]");
const ask = form.querySelector("[name=ask]");
const stop = form.querySelector("[name=stop]");
const results = document.getElementById("playground-results");
const MAX_INPUT = 4 << 20; // characters; etcd keeps no object of 2 MB
const MAX_ADDRESS = 32 << 10; // characters after `#`: what issue trackers and mail still pass on
let worker, isReady = false, asking = null;

const sections = {
  connection: "The connection", rules: "The rules", picture: "The path", audit: "What bypasses the proxy", lint: "Findings",
  compare: "The comparison",
};

function make(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function readState() {
  const control = (name) => form.elements[name];
  return Object.fromEntries(fields.map((name) => [name, control(name).type === "checkbox" ? (control(name).checked ? "1" : "") : control(name).value]));
}

function writeState(state) {
  for (const name of fields) {
    const control = form.elements[name], value = typeof state[name] === "string" ? state[name] : "";
    if (control.type === "checkbox") control.checked = value !== "";
    else control.value = value;
    if (control.tagName === "SELECT" && control.selectedIndex < 0) control.selectedIndex = 0;
  }
  form.querySelector("details.other").open = Boolean(state.other);
}

// The address: the fields that are not empty, as JSON, deflated, in base64url.
async function pack(state) {
  const text = JSON.stringify(Object.fromEntries(Object.entries(state).filter(([, value]) => value)));
  const bytes = new Uint8Array(await new Response(new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"))).arrayBuffer());
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return `1.${btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.slice(2).replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    text += piece.value;
    if (text.length > 2 * MAX_INPUT) throw new Error("too long");
  }
  return JSON.parse(text);
}

async function readAddress() {
  const packed = location.hash.slice(1);
  if (!packed.startsWith("1.")) return;
  try {
    writeState(Object(await unpack(packed)));
    say("The form is filled in from the address. Choose “Show the answers”.");
  } catch {
    say("The address is damaged: what follows its # cannot be read. Was it copied whole?");
  }
}

function say(text) { status.textContent = text; }

function busy(is) {
  stop.disabled = !is;
  ask.disabled = is;
  results.setAttribute("aria-busy", String(is));
}

function startWorker() {
  isReady = false;
  worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
  worker.onerror = () => fail("Python cannot be loaded: open the site from a web server, and build it by make docs with npm installed.");
  worker.onmessage = ({ data }) => {
    if (data.ready) isReady = true;
    else if (data.failed) fail(`Python cannot be loaded: ${data.failed}`);
    else if (asking?.id === data.id) asking.resolve(data);
    if (data.ready && asking) say(asking.words);
  };
}

function fail(text) {
  endWorker();
  say(text);
}

function endWorker() {
  worker?.terminate();
  worker = undefined;
  asking?.resolve(null);
  busy(false);
}

let count = 0;
function request(task, asked, words) {
  if (!worker) startWorker();
  say(isReady ? words : "Loading Python (about 15 MB the first time; the browser keeps it) …");
  return new Promise((resolve) => {
    asking = { id: ++count, resolve, words };
    worker.postMessage({ id: count, task, asked });
  });
}

function list(title, texts) {
  const made = make("ul", "", { class: `playground-${title}` });
  for (const text of texts.slice(0, 50)) made.append(make("li", `${title}: ${text}`));
  return made;
}

function block(title, text, name, wraps) {
  const box = make("div", "", { class: "playground-block" });
  if (title) box.append(make("h4", title));
  box.append(make("pre", text, { tabindex: "0", role: "region", "aria-label": title || name, class: wraps ? "wraps" : "" }));
  return box;
}

let pictures = [];
function picture(svg, caption) {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  pictures.push(address);
  const box = make("div", "", { class: "playground-picture", tabindex: "0", role: "region", "aria-label": "The picture of the path" });
  box.append(make("img", "", { src: address, alt: `The chains, with the path of the connection. ${caption}` }));
  const full = make("button", "Full size", { type: "button", class: "md-button only-wide", "aria-pressed": "false" });
  full.addEventListener("click", () => full.setAttribute("aria-pressed", String(box.classList.toggle("full"))));
  const buttons = make("p", "", { class: "playground-buttons" });
  buttons.append(full, make("a", "Save as SVG", { href: address, download: "netinit-path.svg", class: "md-button" }));
  return [box, buttons];
}

function show(task, { answer, svg, took }) {
  const section = make("section", "", { "data-task": task, "data-took": took.toFixed(0), "aria-labelledby": `playground-${task}` });
  section.append(make("h3", sections[task], { id: `playground-${task}` }));
  if (answer.error) section.append(make("p", answer.error, { class: "playground-error" }));
  if (answer.verdict) section.append(make("p", answer.title || answer.verdict, { class: "playground-verdict", "data-verdict": answer.verdict }));
  if (answer.warnings?.length) section.append(list("warning", answer.warnings));
  if (answer.text && task !== "picture") section.append(block(answer.iptables ? "The flags" : "", answer.text, sections[task], true));
  if (answer.iptables) section.append(block("iptables", answer.iptables, "", false), block("nft", answer.nft, "", false));
  if (svg) section.append(...picture(svg, answer.text));
  else if (task === "picture" && answer.text) section.append(make("p", answer.text));
  if (answer.notes?.length) section.append(list("note", answer.notes));
  if (answer.containers) offer(answer.containers);
  results.append(section);
}

function offer(names) {
  document.getElementById("playground-containers").replaceChildren(...names.map((name) => make("option", "", { value: name })));
}

function clear() {
  for (const address of pictures) URL.revokeObjectURL(address);
  pictures = [];
  results.replaceChildren();
}

async function showAnswers() {
  const asked = readState();
  clear();
  if (asked.input.length > MAX_INPUT || asked.other.length > MAX_INPUT) {
    say("That is too long: more than 4 million characters. Paste one pod, or one Deployment.");
    return;
  }
  busy(true);
  const packed = await pack(asked);
  if (packed.length <= MAX_ADDRESS) history.replaceState(null, "", `#${packed}`);
  else history.replaceState(null, "", location.pathname + location.search);
  const tasks = [...(connection.some((name) => asked[name].trim()) ? ["connection"] : []), ...(asked.other.trim() ? ["compare"] : []),
    "rules", "picture", "audit", "lint"];
  let first = "";
  for (const task of tasks) {
    const found = await request(task, asked, `Answering: ${sections[task].toLowerCase()} …`);
    if (!found) return;
    show(task, found);
    if (found.answer.error && task !== "compare") {
      first ||= found.answer.error;
      if (task === tasks[0]) break; // what cannot be read is not read six times
    }
    if (task === "connection" || task === "compare") first ||= found.answer.verdict;
  }
  asking = null;
  busy(false);
  const shared = packed.length <= MAX_ADDRESS ? "The address of this page leads to this answer." : "The text is too long for an address.";
  say(`${first ? `${sections[tasks[0]]}: ${first.split("\n")[0]}. ` : ""}${results.children.length === 1 ? "1 answer" : `${results.children.length} answers`} below. ${shared}`);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!ask.disabled) showAnswers();
});
stop.addEventListener("click", () => {
  endWorker();
  say("Stopped. Nothing of it runs any more.");
  ask.focus();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});

const situations = await (await fetch(new URL("situations.json", import.meta.url))).json().catch(() => []);
for (const [number, one] of situations.entries()) form.elements.situation.append(make("option", one.title, { value: String(number) }));
form.elements.situation.addEventListener("change", () => {
  const chosen = situations[form.elements.situation.value];
  if (!chosen) return;
  writeState({ ...chosen, input: chosen.input.join("\n"), other: (chosen.other ?? []).join("\n") });
  document.getElementById("playground-hint").textContent = chosen.hint;
});
addEventListener("hashchange", readAddress);
await readAddress();
form.dataset.ready = "yes";

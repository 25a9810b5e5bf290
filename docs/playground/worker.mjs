// Runs Python, and Graphviz, apart from the page, which can stop it. A message {id, task, asked} is answered by {id, answer},
// and {id, svg} if there is a picture. All files stand beside this one; nothing else is asked.
import { loadPyodide } from "./python/pyodide.mjs";

let answer, draw;

async function fetchFile(name) {
  const reply = await fetch(new URL(name, import.meta.url));
  if (!reply.ok) throw new Error(`${name}: ${reply.status}`);
  return reply;
}

async function start() {
  const beside = [fetchFile("python/packages.zip").then((reply) => reply.arrayBuffer()), fetchFile("answers.py").then((reply) => reply.text())];
  const python = await loadPyodide({ indexURL: new URL("python/", import.meta.url).href });
  const [packages, source] = await Promise.all(beside);
  python.unpackArchive(packages, "zip", { extractDir: "/lib/packages" });
  python.FS.writeFile("/lib/packages/answers.py", source);
  answer = python.runPython("import sys; sys.path.insert(0, '/lib/packages'); from answers import answer; answer");
}

const started = start().then(() => postMessage({ ready: true }), (error) => postMessage({ failed: String(error.message ?? error) }));

async function drawPicture(dot) {
  const { instance } = await import("./python/viz.js");
  draw ??= await instance();
  return draw.renderString(dot, { format: "svg" });
}

onmessage = async ({ data: { id, task, asked } }) => {
  await started;
  if (!answer) return;
  const found = { id, began: performance.now() };
  try {
    found.answer = JSON.parse(answer(task, JSON.stringify(asked)));
    if (found.answer.dot) found.svg = await drawPicture(found.answer.dot);
  } catch (error) { // of Python the last line, without the trace
    const last = String(error.message ?? error).trim().split("\n").pop();
    found.answer = { error: `internal error: ${last.slice(0, 500)}` };
  }
  postMessage({ ...found, took: performance.now() - found.began });
};

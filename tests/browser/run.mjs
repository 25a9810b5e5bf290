// Answers command lines in Python for browsers: `node run.mjs PYODIDE ROOT FOLDER-OF-PACKAGES`, a JSON list of lists of words on stdin.
// Only files of netinit, of the packages that it imports, and the examples are there; nothing is loaded from the network.
import fs from "fs";
import path from "path";
import { pathToFileURL } from "url";

const [pyodide, root, packages] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(path.join(pyodide, "pyodide.mjs")));
const python = await loadPyodide({ indexURL: pyodide + path.sep });

function copy(from, to) {
  python.FS.mkdirTree(to);
  for (const name of fs.readdirSync(from)) {
    const source = path.join(from, name), target = `${to}/${name}`;
    if (name === "__pycache__" || name.endsWith(".so")) continue;
    if (fs.statSync(source).isDirectory()) copy(source, target);
    else python.FS.writeFile(target, fs.readFileSync(source));
  }
}
copy(path.join(root, "netinit"), "/lib/packages/netinit");
for (const name of ["yaml", "click"]) copy(path.join(packages, name), `/lib/packages/${name}`);
copy(path.join(root, "examples"), "/home/examples");

python.globals.set("asked", fs.readFileSync(0, "utf-8"));
console.log(python.runPython(`
import io, json, os, sys
sys.path.insert(0, "/lib/packages")
os.chdir("/home")
answers = []
for words in json.loads(asked):
    own, sys.stdout, sys.stderr = (sys.stdout, sys.stderr), io.StringIO(), io.StringIO()
    from netinit.cli.start import run
    code = run(["netinit", *words], {})
    answers.append([code, sys.stdout.getvalue(), sys.stderr.getvalue()])
    sys.stdout, sys.stderr = own
json.dumps(answers)
`));

/* netinit as one static executable: Python, its library and netinit's modules, compiled, inside of this file.
 *
 * Nothing outside of it can become code: no variable is read (isolated configuration), no folder is searched, and the file
 * has no dynamic loader: the definitions of dlopen and its kin below take the place of the C library's, which names,
 * character sets and threads could reach too.
 *
 * executable.py writes the table of the embedded modules (modules.h). The code of those that a job of the init container imports
 * is C data (code.c), which py_import below runs; that of all others is compressed, and Python's import system finds it by
 * netinit/cli/embedded.py. The module _netinit also calls the C functions that netinit.kernel.libc calls through _ctypes elsewhere.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <linux/capability.h>
#include <marshal.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#define START "netinit.cli.start"
#define FINDER "netinit.cli.embedded"
#define KUBECTL_NAME "kubectl-netinit"
#define KUBECTL "kubectl"
#define COMPLETE_NAME "kubectl_complete-netinit"
#define COMPLETE "complete"
#define MOST_NAME 200 /* bytes of a module's name: the longest have 60 */
#define MOST_PATH (2 * MOST_NAME)

/* ---- no loader */

void *dlopen(const char *path, int mode);
void *dlsym(void *library, const char *name);
char *dlerror(void);
int dlclose(void *library);
void *__libc_dlopen_mode(const char *path, int mode);
void *__libc_dlsym(void *library, const char *name);
void *__libc_dlvsym(void *library, const char *name, const char *version);
int __libc_dlclose(void *library);

void *dlopen(const char *path, int mode) { return (void)path, (void)mode, NULL; }
void *dlsym(void *library, const char *name) { return (void)library, (void)name, NULL; }
char *dlerror(void) { return "this executable loads no libraries"; }
int dlclose(void *library) { return (void)library, -1; }
void *__libc_dlopen_mode(const char *path, int mode) { return (void)path, (void)mode, NULL; }
void *__libc_dlsym(void *library, const char *name) { return (void)library, (void)name, NULL; }
void *__libc_dlvsym(void *library, const char *name, const char *version) { return (void)library, (void)name, (void)version, NULL; }
int __libc_dlclose(void *library) { return (void)library, -1; }

/* ---- the embedded files */

struct embedded {
    const char *name;
    uint32_t at, packed, unpacked; /* a block of files, compressed by zlib */
    uint32_t within, size;         /* the file in it: what marshal reads, or data */
    int16_t number;                /* of the module's code in static_modules; -1: it is in the block */
    uint8_t is_package;
};

__asm__(".section .rodata_modules, \"a\"\n.balign 16\nembedded_bytes: .incbin \"modules.bin\"\n.previous");
extern const unsigned char embedded_bytes[];
extern PyObject *const static_modules[]; /* code.c */
struct _module_alias { /* as internal/pycore_import.h has it */
    const char *name, *own;
};
#define CODE_OF(number) static PyObject *code_##number(void) { return Py_NewRef(static_modules[number]); }
#include "modules.h" /* embedded_files[], by name; frozen_modules[], frozen_aliases[]; _PyImport_Inittab[] */

static int compare(const void *name, const void *file)
{
    return strcmp(name, ((const struct embedded *)file)->name);
}

static const struct embedded *find_file(const char *name)
{
    return bsearch(name, embedded_files, sizeof embedded_files / sizeof *embedded_files, sizeof *embedded_files, compare);
}

static PyObject *py_find(PyObject *Py_UNUSED(module), PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    const struct embedded *file = name ? find_file(name) : NULL;

    if (PyErr_Occurred())
        return NULL;
    return file ? PyLong_FromLong(file->is_package) : Py_NewRef(Py_None);
}

static PyObject *py_names(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    size_t count = sizeof embedded_files / sizeof *embedded_files;
    PyObject *names = PyList_New((Py_ssize_t)count);

    for (size_t at = 0; names && at < count; at++) {
        PyObject *name = PyUnicode_FromString(embedded_files[at].name);
        if (!name)
            Py_CLEAR(names);
        else
            PyList_SET_ITEM(names, (Py_ssize_t)at, name);
    }
    return names;
}

/* A file's bytes. Its block is kept: what is imported next is often in it, too. */
static const unsigned char *read_file(const struct embedded *file)
{
    static struct block {
        struct block *next;
        uint32_t at;
        unsigned char bytes[];
    } *blocks;
    struct block *block = blocks;
    uLongf size = file->unpacked;

    if (file->packed == file->unpacked) /* it is not compressed */
        return embedded_bytes + file->at + file->within;
    while (block && block->at != file->at)
        block = block->next;
    if (!block) {
        if (!(block = malloc(sizeof *block + size)))
            return PyErr_NoMemory(), NULL;
        if (uncompress(block->bytes, &size, embedded_bytes + file->at, file->packed) != Z_OK) {
            free(block);
            return PyErr_Format(PyExc_SystemError, "%s is damaged in this executable", file->name), NULL;
        }
        block->at = file->at;
        block->next = blocks;
        blocks = block;
    }
    return block->bytes + file->within;
}

static PyObject *py_read(PyObject *Py_UNUSED(module), PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    const struct embedded *file = name ? find_file(name) : NULL;

    if (!file || file->number >= 0)
        return name ? PyErr_Format(PyExc_FileNotFoundError, "%s is not in this executable", name) : NULL;
    const unsigned char *bytes = read_file(file);
    return bytes ? PyBytes_FromStringAndSize((const char *)bytes, file->size) : NULL;
}

static PyObject *py_load(PyObject *Py_UNUSED(module), PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    const struct embedded *file = name ? find_file(name) : NULL;

    if (!file)
        return name ? PyErr_Format(PyExc_ImportError, "%s is not in this executable", name) : NULL;
    if (file->number >= 0)
        return Py_NewRef(static_modules[file->number]);
    const unsigned char *bytes = read_file(file);
    return bytes ? PyMarshal_ReadObjectFromString((const char *)bytes, file->size) : NULL;
}

/* ---- imports */

static PyObject *usual_import; /* Python's __import__ */

static int set_text(PyObject *names, const char *name, PyObject *text) /* takes the reference */
{
    int wrong = !text || PyDict_SetItemString(names, name, text);

    Py_XDECREF(text);
    return wrong;
}

static PyObject *import_static(const char *name, PyObject *modules);

/* Runs the code of a module whose package has been imported. */
static PyObject *run_module(const struct embedded *file, PyObject *package, const char *own, PyObject *modules)
{
    const char *name = file->name;
    PyObject *module = PyModule_New(name), *names = module ? PyModule_GetDict(module) : NULL, *done = NULL;
    size_t above = file->is_package ? strlen(name) : package ? strlen(name) - strlen(own) - 1 : 0;
    char path[MOST_PATH];

    if (!module)
        return NULL;
    char *end = stpcpy(path, name);
    for (char *each = path; each < end; each++)
        if (*each == '.')
            *each = '/';
    strcpy(end, file->is_package ? "/__init__.py" : ".py");
    if (!set_text(names, "__file__", PyUnicode_FromString(path)) && !set_text(names, "__package__", PyUnicode_FromStringAndSize(name, (Py_ssize_t)above))
        && (!file->is_package || !set_text(names, "__path__", Py_BuildValue("[s]", name)))
        && !PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins()) && !PyDict_SetItemString(modules, name, module)) {
        done = PyEval_EvalCode(static_modules[file->number], names, names);
        if (!done)
            PyDict_DelItemString(modules, name);
        else if (package && PyObject_SetAttrString(package, own, module))
            Py_CLEAR(done);
    }
    Py_XDECREF(done);
    if (!done)
        Py_CLEAR(module);
    return module;
}

/* A module of static code, from sys.modules or run now, after the packages that it is in. NULL without an exception: there is none. */
static PyObject *import_static(const char *name, PyObject *modules)
{
    PyObject *known = PyDict_GetItemString(modules, name), *package = NULL;
    const struct embedded *file;
    const char *dot;
    char above[MOST_PATH];

    if (known)
        return known == Py_None ? NULL : Py_NewRef(known); /* None: it must not be imported */
    file = find_file(name);
    if (!file || file->number < 0)
        return NULL;
    if ((dot = strrchr(name, '.'))) {
        memcpy(above, name, (size_t)(dot - name));
        above[dot - name] = 0;
        if (!(package = import_static(above, modules)))
            return NULL;
    }
    known = PyDict_GetItemString(modules, name); /* its package may have imported it */
    PyObject *module = known ? Py_NewRef(known) : run_module(file, package, dot ? dot + 1 : name, modules);
    Py_XDECREF(package);
    return module;
}

/* Imports what `from package import name, …` names, where it is a module of the package. 1: done; 0: Python shall; -1: an exception. */
static int import_named(const char *package, PyObject *module, PyObject *wanted, PyObject *modules)
{
    char inner[MOST_PATH];

    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(wanted); at++) {
        PyObject *own = PyTuple_GET_ITEM(wanted, at), *value;
        if (_PyObject_LookupAttr(module, own, &value) < 0)
            return -1;
        if (value) {
            Py_DECREF(value);
            continue;
        }
        const char *text = PyUnicode_AsUTF8(own);
        if (!text)
            return -1;
        if (snprintf(inner, sizeof inner, "%s.%s", package, text) >= (int)sizeof inner)
            return 0;
        PyObject *found = import_static(inner, modules);
        if (!found)
            return PyErr_Occurred() ? -1 : 0;
        Py_DECREF(found);
    }
    return 1;
}

/* Lets Python's import system find what is in the executable, from the first time on that it has to. */
static int use_finder(PyObject *modules)
{
    static int used;
    PyObject *finder = used++ ? NULL : import_static(FINDER, modules);

    Py_XDECREF(finder);
    return !PyErr_Occurred();
}

/* In the place of Python's __import__: modules of static code are run without the specifications and locks of its import system,
 * which cost more than most modules. Everything else, and everything while other threads run, is left to it. */
static PyObject *py_import(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    PyObject *modules = PyImport_GetModuleDict(), *wanted = NULL, *found = NULL;
    PyThreadState *thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    const char *name = count ? PyUnicode_AsUTF8(arguments[0]) : NULL;

    if (count == 5 && !keywords && !PyLong_AsLong(arguments[4]))
        wanted = arguments[3];
    else if (count == 1 && keywords && PyTuple_GET_SIZE(keywords) == 1 && !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, 0), "fromlist"))
        wanted = arguments[1];
    if (!name || strlen(name) > MOST_NAME || PyThreadState_Next(thread) || !wanted)
        goto usual;
    int none = wanted == Py_None || (PyTuple_Check(wanted) && !PyTuple_GET_SIZE(wanted)) || (PyList_Check(wanted) && !PyList_GET_SIZE(wanted));
    if (!(found = import_static(name, modules)))
        goto usual;
    if (none) {
        const char *dot = strchr(name, '.');
        if (dot) {
            PyObject *top = PyUnicode_FromStringAndSize(name, dot - name);
            Py_SETREF(found, top ? Py_XNewRef(PyDict_GetItemWithError(modules, top)) : NULL);
            Py_XDECREF(top);
        }
    } else {
        const struct embedded *file = find_file(name);
        int done = file && !file->is_package ? 1 : !PyTuple_Check(wanted) ? 0 : import_named(name, found, wanted, modules);
        if (done < 1)
            Py_CLEAR(found);
    }
    if (found)
        return found;
usual:
    if (PyErr_Occurred() || (name && find_file(name) && !use_finder(modules)))
        return NULL;
    return PyObject_Vectorcall(usual_import, arguments, (size_t)count, keywords);
}

/* ---- functions of the C library */

#define MOST_ARGUMENTS 6

typedef int function(long, long, long, long, long, long);

static const struct {
    const char *name;
    function *call;
} functions[] = {
#define CALLED(name) {#name, (function *)(void (*)(void))name}
    CALLED(getrlimit), CALLED(getsockopt), CALLED(inotify_add_watch), CALLED(inotify_init1), CALLED(prctl), CALLED(setfsgid), CALLED(setfsuid), CALLED(setns),
    CALLED(setrlimit), CALLED(setsockopt), CALLED(syscall), CALLED(unshare), {"capset", NULL},
};

static int capset(long header, long data, long c, long d, long e, long f)
{
    return (void)c, (void)d, (void)e, (void)f, (int)syscall(SYS_capset, header, data);
}

static function *find_function(const char *name)
{
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++)
        if (!strcmp(functions[at].name, name))
            return functions[at].call ? functions[at].call : capset;
    return NULL;
}

/* call(name, argument…): integers are handed over as they are, bytes and buffers by their address. Returns what the function
 * returned, and errno. */
static PyObject *py_call(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    long given[MOST_ARGUMENTS] = {0};
    Py_buffer views[MOST_ARGUMENTS];
    int held = 0, done = -1, number = 0;
    const char *name = count ? PyUnicode_AsUTF8(arguments[0]) : NULL;
    function *called = name ? find_function(name) : NULL;

    if (PyErr_Occurred())
        return NULL;
    if (!called || count > MOST_ARGUMENTS + 1)
        return PyErr_Format(PyExc_SystemError, "this executable does not call %s so", name ? name : "a function without a name");
    for (Py_ssize_t at = 1; at < count && !PyErr_Occurred(); at++)
        if (PyLong_Check(arguments[at]))
            given[at - 1] = PyLong_AsLong(arguments[at]);
        else if (!PyObject_GetBuffer(arguments[at], &views[held], PyBUF_SIMPLE))
            given[at - 1] = (long)views[held++].buf;
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        errno = 0;
        done = called(given[0], given[1], given[2], given[3], given[4], given[5]);
        number = errno;
        Py_END_ALLOW_THREADS
    }
    while (held)
        PyBuffer_Release(&views[--held]);
    return PyErr_Occurred() ? NULL : Py_BuildValue("ii", done, number);
}

static PyObject *py_address_of(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_buffer view;

    if (PyObject_GetBuffer(argument, &view, PyBUF_WRITABLE))
        return NULL;
    PyObject *address = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return address;
}

static PyMethodDef methods[] = {
    {"find", py_find, METH_O, "find(name): whether this embedded file is a package; None if there is none of that name."},
    {"names", py_names, METH_NOARGS, "names(): those of the embedded files."},
    {"import_module", (PyCFunction)(void (*)(void))py_import, METH_FASTCALL | METH_KEYWORDS, "import_module(…): as Python's __import__."},
    {"load", py_load, METH_O, "load(name): the code of an embedded module."},
    {"read", py_read, METH_O, "read(name): the bytes of an embedded file."},
    {"call", (PyCFunction)(void (*)(void))py_call, METH_FASTCALL, "call(name, *arguments): what a C function returns, and errno."},
    {"address_of", py_address_of, METH_O, "address_of(buffer): the address of a writable buffer."},
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_netinit", .m_size = 0, .m_methods = methods,
};

static PyObject *make_module(void)
{
    return PyModuleDef_Init(&definition);
}

/* ---- what Debian has in a library of its own: the module behind contextvars, which decimal imports */

static PyObject *py_copy_context(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyContext_CopyCurrent();
}

static PyMethodDef context_methods[] = {
    {"copy_context", py_copy_context, METH_NOARGS, "copy_context(): the current context."},
    {0},
};

static int add_context_types(PyObject *module)
{
    return PyModule_AddType(module, &PyContext_Type) || PyModule_AddType(module, &PyContextVar_Type) || PyModule_AddType(module, &PyContextToken_Type);
}

static PyModuleDef_Slot context_slots[] = {{Py_mod_exec, add_context_types}, {0}};
static struct PyModuleDef context_definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_contextvars", .m_size = 0, .m_methods = context_methods, .m_slots = context_slots,
};

static PyObject *make_context_module(void)
{
    return PyModuleDef_Init(&context_definition);
}

/* ---- the start */

/* Who is not root gets capabilities from the file of the program, permitted ones, so that it starts everywhere: here they take
 * effect. NET_RAW serves only beside NET_ADMIN. A refusal is not told: netinit says what it lacks. */
static void use_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3];

    if (geteuid() == 0 || syscall(SYS_capget, &header, words))
        return;
    if (words[0].permitted & 1U << CAP_NET_ADMIN)
        words[0].effective |= words[0].permitted & (1U << CAP_NET_ADMIN | 1U << CAP_NET_RAW);
    else
        words[0].permitted &= ~(1U << CAP_NET_RAW);
    syscall(SYS_capset, &header, words);
}

extern const unsigned char text_seldom[], text_seldom_end[], rodata_seldom_end[]; /* order.ld */

/* Keeps what a job does not use out of its memory: where a file's pages lie together in the page cache, the kernel (6.18) maps
 * all of them at once, up to where the advice for them changes. */
static void set_apart(const unsigned char *from, const unsigned char *to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = ((uintptr_t)from + page - 1) & -page, end = (uintptr_t)to & -page;

    if (end > first)
        madvise((void *)first, end - first, MADV_RANDOM);
}

static void fail(PyStatus status)
{
    if (PyStatus_Exception(status))
        Py_ExitStatusException(status);
}

/* In the place of Python's own frozen modules: of them only its import system is here, and no import from zip archives. */
static const struct _frozen no_modules[] = {{0}};
const struct _frozen *_PyImport_FrozenBootstrap = frozen_modules, *_PyImport_FrozenStdlib = no_modules, *_PyImport_FrozenTest = no_modules;
const struct _frozen *PyImport_FrozenModules;
extern const struct _module_alias *_PyImport_FrozenAliases;
const struct _module_alias *_PyImport_FrozenAliases = frozen_aliases;
int _Py_Deepfreeze_Init(void);
void _Py_Deepfreeze_Fini(void);
int _Py_Deepfreeze_Init(void) { return 0; }
void _Py_Deepfreeze_Fini(void) {}

/* Python's search for its folders, which are all given. */
PyStatus _PyConfig_InitPathConfig(PyConfig *config, int computed);
PyStatus _PyConfig_InitPathConfig(PyConfig *Py_UNUSED(config), int Py_UNUSED(computed)) { return PyStatus_Ok(); }

static void use_own_imports(void)
{
    PyObject *own = PyImport_ImportModule("_netinit"), *import = own ? PyObject_GetAttrString(own, "import_module") : NULL;
    PyObject *builtins = PyEval_GetBuiltins();

    usual_import = Py_XNewRef(PyDict_GetItemString(builtins, "__import__"));
    if (!import || !usual_import || PyDict_SetItemString(builtins, "__import__", import))
        Py_FatalError("no imports");
    Py_DECREF(import);
    Py_DECREF(own);
}

static void initialize(int count, char **words)
{
    PyPreConfig before;
    PyConfig config;

    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1;
    fail(Py_PreInitialize(&before));
    PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 1;
    config.module_search_paths_set = 1; /* none */
    config.pathconfig_warnings = 0;
    config.site_import = 0;
    config.write_bytecode = 0;
    wchar_t **places[] = {
        &config.base_exec_prefix, &config.base_executable, &config.base_prefix, &config.exec_prefix, &config.executable,
        &config.home, &config.prefix, &config.program_name, &config.stdlib_dir,
    };
    for (size_t at = 0; at < sizeof places / sizeof *places; at++)
        fail(PyConfig_SetString(&config, places[at], L""));
    fail(PyConfig_SetBytesArgv(&config, count, words));
    if (PyImport_AppendInittab("_netinit", make_module) || PyImport_AppendInittab("_contextvars", make_context_module))
        fail(PyStatus_NoMemory());
    config._init_main = 0;
    fail(Py_InitializeFromConfig(&config));
    PyConfig_Clear(&config);
    PyGC_Disable(); /* see netinit.cli.start */
    use_own_imports();
    fail(_Py_InitializeMain());
}

/* Whether a command may start kubectl. */
static int asks_kubectl(const char *command)
{
    static const char *const commands[] = {KUBECTL, "check-inject", "inject", "kube-inject", "webhook"};

    for (size_t at = 0; at < sizeof commands / sizeof *commands; at++)
        if (!strcmp(command, commands[at]))
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    const char *name = slash ? slash + 1 : argc ? argv[0] : "";
    int completes = !strcmp(name, COMPLETE_NAME), as_plugin = completes || !strcmp(name, KUBECTL_NAME), given = argc ? argc - 1 : 0, count = 0;
    char **words = calloc((size_t)given + 5, sizeof *words);

    if (!words) {
        fputs("netinit: no memory\n", stderr);
        return 1;
    }
    words[count++] = argc && !as_plugin ? argv[0] : "netinit";
    if (as_plugin)
        words[count++] = KUBECTL;
    if (completes) {
        words[count++] = COMPLETE;
        words[count++] = "--";
    }
    memcpy(words + count, argv + !!argc, (size_t)given * sizeof *words);
    count += given;
    if (count < 2 || !asks_kubectl(words[1]))
        unsetenv("PATH"); /* netinit looks for programs in the usual folders; kubectl is where its user has it */
    use_capabilities();
    set_apart(embedded_bytes, rodata_seldom_end);
    set_apart(text_seldom, text_seldom_end);
    initialize(count, words);
    PyObject *start = PyImport_ImportModule(START), *done = start ? PyObject_CallMethod(start, "main", NULL) : NULL;
    if (!done)
        PyErr_Print(); /* also ends the process as SystemExit says */
    return Py_FinalizeEx() < 0 || !done;
}

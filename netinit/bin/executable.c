/* netinit as one static executable: Python, its library and netinit's modules, compiled, inside of this file.
 *
 * Nothing outside of it can become code: no variable is read (isolated configuration), no folder is searched, and the file
 * has no dynamic loader: the definitions of dlopen and its kin below take the place of the C library's, which names,
 * character sets and threads could reach too.
 *
 * The module _netinit gives Python the embedded files, and calls the C functions that netinit.kernel.libc calls through
 * _ctypes elsewhere. modules.h, which executable.py writes, has the table of the files; netinit/cli/embedded.py imports them.
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#define START "netinit.cli.embedded"
#define KUBECTL_NAME "kubectl-netinit"
#define KUBECTL "kubectl"

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
    uint32_t at, packed, size; /* packed bytes at this place; where size is larger, they are compressed by zlib */
    uint8_t is_package, is_shared; /* shared: with others in one record */
};

__asm__(".section .rodata\n.balign 16\nembedded_bytes: .incbin \"modules.bin\"\n.previous");
extern const unsigned char embedded_bytes[];
#include "modules.h" /* static const struct embedded embedded_files[], by name; static const struct _frozen frozen_modules[] */

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

static PyObject *py_is_shared(PyObject *Py_UNUSED(module), PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    const struct embedded *file = name ? find_file(name) : NULL;

    return PyErr_Occurred() ? NULL : PyBool_FromLong(file && file->is_shared);
}

/* The bytes of a file. */
static PyObject *read_file(const struct embedded *file)
{
    uLongf size = file->size;

    if (file->size == file->packed)
        return PyBytes_FromStringAndSize((const char *)embedded_bytes + file->at, file->size);
    PyObject *content = PyBytes_FromStringAndSize(NULL, file->size);
    if (content && uncompress((Bytef *)PyBytes_AS_STRING(content), &size, embedded_bytes + file->at, file->packed) != Z_OK) {
        Py_CLEAR(content);
        PyErr_Format(PyExc_SystemError, "%s is damaged in this executable", file->name);
    }
    return content;
}

static PyObject *py_read(PyObject *Py_UNUSED(module), PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    const struct embedded *file = name ? find_file(name) : NULL;

    if (file)
        return read_file(file);
    if (name)
        PyErr_Format(PyExc_FileNotFoundError, "%s is not in this executable", name);
    return NULL;
}

/* What marshal reads of a file, for a module its record: the names of the modules to be imported before, and a name, whether it is a
 * package, and the code of each module in it. */
static PyObject *load_file(const char *name)
{
    const struct embedded *file = find_file(name);

    if (!file)
        return PyErr_Format(PyExc_ImportError, "%s is not in this executable", name);
    if (file->size == file->packed)
        return PyMarshal_ReadObjectFromString((const char *)embedded_bytes + file->at, file->size);
    PyObject *content = read_file(file), *loaded = NULL;
    if (content)
        loaded = PyMarshal_ReadObjectFromString(PyBytes_AS_STRING(content), file->size);
    Py_XDECREF(content);
    return loaded;
}

static PyObject *py_load(PyObject *Py_UNUSED(module), PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);

    return name ? load_file(name) : NULL;
}

/* ---- functions of the C library */

#define MOST_ARGUMENTS 6

typedef int function(long, long, long, long, long, long);

static const struct {
    const char *name;
    function *call;
} functions[] = {
#define CALLED(name) {#name, (function *)(void (*)(void))name}
    CALLED(getsockopt), CALLED(inotify_add_watch), CALLED(inotify_init1), CALLED(prctl), CALLED(setfsgid), CALLED(setfsuid), CALLED(setns), CALLED(setsockopt),
    CALLED(syscall), CALLED(unshare), {"capset", NULL},
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
    {"is_shared", py_is_shared, METH_O, "is_shared(name): whether an embedded module is in a record with others."},
    {"names", py_names, METH_NOARGS, "names(): those of the embedded files."},
    {"load", py_load, METH_O, "load(name): the record in which an embedded module is."},
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

/* ---- the start */

/* Who is not root gets capabilities from the file of the program, permitted ones, so that it starts everywhere: here they take
 * effect. NET_RAW serves only beside NET_ADMIN. A refusal is not told: netinit says what it lacks. */
static void use_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3];

    if (geteuid() == 0 || syscall(SYS_capget, &header, words))
        return;
    words[0].effective |= words[0].permitted & (1U << CAP_NET_ADMIN | 1U << CAP_NET_RAW);
    if (words[0].permitted & 1U << CAP_NET_ADMIN)
        syscall(SYS_capset, &header, words);
}

static void fail(PyStatus status)
{
    if (PyStatus_Exception(status))
        Py_ExitStatusException(status);
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
    PyImport_FrozenModules = frozen_modules;
    if (PyImport_AppendInittab("_netinit", make_module))
        fail(PyStatus_NoMemory());
    fail(Py_InitializeFromConfig(&config));
    PyConfig_Clear(&config);
}

int main(int argc, char **argv)
{
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    const char *name = slash ? slash + 1 : argc ? argv[0] : "";
    int as_plugin = !strcmp(name, KUBECTL_NAME), given = argc ? argc - 1 : 0, count = 0;
    char **words = calloc((size_t)given + 3, sizeof *words);

    if (!words) {
        fputs("netinit: no memory\n", stderr);
        return 1;
    }
    words[count++] = argc && !as_plugin ? argv[0] : "netinit";
    if (as_plugin)
        words[count++] = KUBECTL;
    memcpy(words + count, argv + !!argc, (size_t)given * sizeof *words);
    count += given;
    if (count < 2 || strcmp(words[1], KUBECTL))
        unsetenv("PATH"); /* netinit looks for programs in the usual folders; kubectl is where its user has it */
    use_capabilities();
    initialize(count, words);
    PyObject *record = load_file(START), *globals = PyModule_GetDict(PyImport_AddModule("__main__")), *done = NULL;
    if (record && globals)
        done = PyEval_EvalCode(PyTuple_GET_ITEM(PyTuple_GET_ITEM(PyTuple_GET_ITEM(record, 1), 0), 2), globals, globals);
    if (!done)
        PyErr_Print(); /* also ends the process as SystemExit says */
    return Py_FinalizeEx() < 0 || !done;
}

/* guards.h: the C extension copyrpc._guards: what the package cannot do in Python, because Python
 * runs signal handlers between any two steps, and their exceptions may come from there. It keeps to the limited API of
 * Python 3.12, so that one build is good for all later ones. */
#ifndef COPYRPC_GUARDS_H
#define COPYRPC_GUARDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef Py_LIMITED_API /* which has functions for these; elsewhere they cost nothing, and each call needs some */
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_GET_SIZE PyTuple_Size
#define PyBytes_AS_STRING PyBytes_AsString
#define PyBytes_GET_SIZE PyBytes_Size
#define PyDict_GET_SIZE PyDict_Size
#define PyList_GET_ITEM PyList_GetItem
#define PyList_GET_SIZE PyList_Size
#define PyList_SET_ITEM (void)PyList_SetItem
#endif

/* Makes a type of the module's, and puts it into *type. It is on the heap, as the stable ABI has all types: whatever frees an
 * object of it lets go of the type after that, and what traverses one visits the type. Returns 0, or -1 with an exception set. */
int copyrpc_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **type);

/* Frees an object of a type that the collector knows of, or does not know of. The last step of its dealloc. */
void copyrpc_free_collected(PyObject *object);
void copyrpc_free_plain(PyObject *object);

/* Add their types and functions to the module. Return 0, or -1 with an exception set. */
int copyrpc_hold_add(PyObject *module);
int copyrpc_guard_add(PyObject *module);
int copyrpc_attempt_add(PyObject *module);
int copyrpc_exporter_add(PyObject *module);
int copyrpc_payloads_add(PyObject *module);
int copyrpc_futures_add(PyObject *module);

/* Calls step(*arguments) until it has come to its end, as through() does. Returns what it returned, or NULL with an exception set. */
PyObject *copyrpc_through(PyObject *step, PyObject *arguments);

/* Take the lock of a Use, as `with` does, and let it go. Taking it returns 0, or -1 with an exception set. */
int copyrpc_is_use(PyObject *object);
int copyrpc_use_take(PyObject *use);
void copyrpc_use_let_go(PyObject *use);

/* Counts a Tally up, and returns its value. */
unsigned long long copyrpc_tally_next(PyObject *tally);

/* Returns where the first payload of a Pins is; NULL if the object is no Pins. */
void *copyrpc_pins_address(PyObject *object);

#endif

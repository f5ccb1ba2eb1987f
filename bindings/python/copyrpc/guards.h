/* guards.h: the C extension copyrpc._guards: what the package cannot do in Python, because Python
 * runs signal handlers between any two steps, and their exceptions may come from there. */
#ifndef COPYRPC_GUARDS_H
#define COPYRPC_GUARDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add their types and functions to the module. Return 0, or -1 with an exception set. */
int copyrpc_hold_add(PyObject *module);
int copyrpc_guard_add(PyObject *module);
int copyrpc_exporter_add(PyObject *module);
int copyrpc_payloads_add(PyObject *module);
int copyrpc_futures_add(PyObject *module);

/* Take the lock of a Use, as `with` does, and let it go. Taking it returns 0, or -1 with an exception set. */
int copyrpc_use_take(PyObject *use);
void copyrpc_use_let_go(PyObject *use);

/* Counts a Tally up, and returns its value. */
unsigned long long copyrpc_tally_next(PyObject *tally);

/* Returns where the first payload of a Pins is; NULL if the object is no Pins. */
void *copyrpc_pins_address(PyObject *object);

#endif

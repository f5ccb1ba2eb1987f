/* guards.h: the C extension copyrpc._guards: what the package cannot do in Python. */
#ifndef COPYRPC_GUARDS_H
#define COPYRPC_GUARDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Adds its type to the module. Returns 0, or -1 with an exception set. */
int copyrpc_exporter_add(PyObject *module);

#endif

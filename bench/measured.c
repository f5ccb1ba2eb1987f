/* measured.c: the Python module `measured`: functions that callgrind knows by their names, around what Python is to be counted in.
 * (What ctypes calls, callgrind takes for a part of libffi.) */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "not_inlined.h"

/* begin(step) and finish(step) return what step() returned. */
NOT_INLINED static PyObject *bench_begin(PyObject *module, PyObject *step)
{
    (void)module;
    PyObject *result = PyObject_CallNoArgs(step);
    __asm__ volatile(""); /* else the call is a jump, and for callgrind the function ends there */
    return result;
}

NOT_INLINED static PyObject *bench_finish(PyObject *module, PyObject *step)
{
    (void)module;
    PyObject *result = PyObject_CallNoArgs(step);
    __asm__ volatile("");
    return result;
}

static PyMethodDef functions[] = {
    {"begin", bench_begin, METH_O, NULL},
    {"finish", bench_finish, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "measured", .m_size = -1,
                                    .m_methods = functions};

PyMODINIT_FUNC PyInit_measured(void);

PyMODINIT_FUNC PyInit_measured(void)
{
    return PyModule_Create(&module);
}

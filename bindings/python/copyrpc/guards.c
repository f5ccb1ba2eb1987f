/* guards.c: the module copyrpc._guards. */
#include "guards.h"

static struct PyModuleDef guards_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "copyrpc._guards",
    .m_doc = "What signal handlers' exceptions must not cut in two.",
    .m_size = -1,
};

int copyrpc_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec,
                                                     NULL); /* for as long as the process runs */
    return *type == NULL ? -1 : PyModule_AddType(module, *type);
}

void copyrpc_free_collected(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

void copyrpc_free_plain(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

PyMODINIT_FUNC PyInit__guards(void);

PyMODINIT_FUNC PyInit__guards(void)
{
    PyObject *module = PyModule_Create(&guards_module);
    if (module != NULL && (copyrpc_hold_add(module) < 0 || copyrpc_guard_add(module) < 0 ||
                           copyrpc_attempt_add(module) < 0 || copyrpc_exporter_add(module) < 0 ||
                           copyrpc_payloads_add(module) < 0 || copyrpc_futures_add(module) < 0)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}

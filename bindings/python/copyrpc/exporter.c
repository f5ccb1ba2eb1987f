/* exporter.c: memory of the library's that Python code looks at, with a count of who looks.
 *
 * A memoryview takes the memory once, and its slices share that; so does whatever takes it from
 * another buffer. The memory can be ended when nobody looks at it, and then nobody can look any
 * more. The count is one atomic number, so that this also holds without the GIL. */
#include "guards.h"

#include <stdatomic.h>

static PyTypeObject *exporter_type;

#define ENDED ((Py_ssize_t)-1)

struct exporter {
    PyObject_HEAD void *address;
    Py_ssize_t bytes;
    int readonly;
    _Atomic(Py_ssize_t) views; /* or ENDED */
};

static int exporter_get(PyObject *object, Py_buffer *view, int flags)
{
    struct exporter *self = (struct exporter *)object;
    Py_ssize_t views = atomic_load(&self->views);
    do {
        if (views == ENDED) {
            view->obj = NULL;
            PyErr_SetString(PyExc_BufferError, "the memory behind this view has ended");
            return -1;
        }
    } while (!atomic_compare_exchange_weak(&self->views, &views, views + 1));
    int status = PyBuffer_FillInfo(view, object, self->address, self->bytes, self->readonly, flags);
    if (status < 0) {
        atomic_fetch_sub(&self->views, 1);
    }
    return status;
}

static void exporter_release(PyObject *object, Py_buffer *view)
{
    (void)view;
    atomic_fetch_sub(&((struct exporter *)object)->views, 1);
}

/* end(): returns False, and changes nothing, if somebody looks at the memory. */
static PyObject *exporter_end(PyObject *object, PyObject *none)
{
    Py_ssize_t views = 0;
    (void)none;
    return PyBool_FromLong(
        atomic_compare_exchange_strong(&((struct exporter *)object)->views, &views, ENDED) ||
        views == ENDED);
}

static PyObject *exporter_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"address", "size", "readonly", NULL};
    unsigned long long address;
    Py_ssize_t bytes;
    int readonly;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Knp", names, &address, &bytes,
                                     &readonly)) {
        return NULL;
    }
    struct exporter *self = (struct exporter *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->address = (void *)(uintptr_t)address;
        self->bytes = bytes;
        self->readonly = readonly;
    }
    return (PyObject *)self;
}

static PyMethodDef exporter_methods[] = {
    {"end", exporter_end, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot exporter_slots[] = {
    {Py_tp_doc, "Memory of the library's, as long as it is there."},
    {Py_tp_new, exporter_new},
    {Py_tp_methods, exporter_methods},
    {Py_bf_getbuffer, exporter_get},
    {Py_bf_releasebuffer, exporter_release},
    {0, NULL},
};

static PyType_Spec exporter_spec = {
    .name = "copyrpc._guards.Exporter",
    .basicsize = sizeof(struct exporter),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = exporter_slots,
};

int copyrpc_exporter_add(PyObject *module)
{
    return copyrpc_type_add(module, &exporter_spec, &exporter_type);
}

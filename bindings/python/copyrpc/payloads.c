/* payloads.c: lists of payloads: where those lie that are to be sent, and copies of those that came. */
#include "guards.h"

#include <structmember.h>

static PyTypeObject *pins_type;

/* Keeps payloads where they are for as long as it lives, and has them in the form that the library wants. */
struct pins {
    PyObject_HEAD PyObject *payloads; /* a tuple */
    Py_buffer *views;                 /* of those that are not bytes */
    Py_ssize_t views_count;
    void **addresses;
    uint32_t *sizes;
};

/* copyrpc_native_span of native.h, which needs the library's header. */
struct span {
    uint64_t begin;
    uint64_t end;
};

/* It stays where it is without a view. */
static int is_short_bytes(PyObject *payload)
{
    return PyBytes_CheckExact(payload) && PyBytes_GET_SIZE(payload) <= UINT32_MAX;
}

static int pin_view(struct pins *self, Py_ssize_t index, PyObject *payload)
{
    Py_buffer *view = &self->views[self->views_count];
    if (PyObject_GetBuffer(payload, view, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    self->views_count++;
    if (view->len > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "request %zd has %zd bytes, which is too many", index,
                     view->len);
        return -1;
    }
    self->addresses[index] = view->buf;
    self->sizes[index] = (uint32_t)view->len;
    return 0;
}

static int pin_all(struct pins *self)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(self->payloads);
    Py_ssize_t views_count = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        views_count += !is_short_bytes(PyTuple_GET_ITEM(self->payloads, i));
    }
    self->addresses = PyMem_New(void *, count);
    self->sizes = PyMem_New(uint32_t, count);
    self->views = PyMem_New(Py_buffer, views_count);
    if (self->addresses == NULL || self->sizes == NULL || self->views == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *payload = PyTuple_GET_ITEM(self->payloads, i);
        if (is_short_bytes(payload)) {
            self->addresses[i] = PyBytes_AS_STRING(payload);
            self->sizes[i] = (uint32_t)PyBytes_GET_SIZE(payload);
        } else if (pin_view(self, i, payload) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *pins_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"payloads", NULL};
    PyObject *payloads;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!", names, &PyTuple_Type, &payloads)) {
        return NULL;
    }
    struct pins *self = (struct pins *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    Py_INCREF(payloads);
    self->payloads = payloads;
    if (pin_all(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* Like a tuple it cannot be cleared: who breaks a ring that it is in must do so elsewhere. */
static int pins_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct pins *self = (struct pins *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->payloads);
    for (Py_ssize_t i = 0; i < self->views_count; i++) {
        Py_VISIT(self->views[i].obj);
    }
    return 0;
}

static void pins_dealloc(PyObject *object)
{
    struct pins *self = (struct pins *)object;
    PyObject_GC_UnTrack(object);
    for (Py_ssize_t i = 0; i < self->views_count; i++) {
        PyBuffer_Release(&self->views[i]);
    }
    PyMem_Free(self->views);
    PyMem_Free(self->addresses);
    PyMem_Free(self->sizes);
    Py_XDECREF(self->payloads);
    copyrpc_free_collected(object);
}

static Py_ssize_t pins_length(PyObject *object)
{
    return PyTuple_GET_SIZE(((struct pins *)object)->payloads);
}

static PyObject *pins_addresses(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((struct pins *)object)->addresses);
}

static PyObject *pins_sizes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((struct pins *)object)->sizes);
}

static PyGetSetDef pins_attributes[] = {
    {"addresses", pins_addresses, NULL, "Where an array of pointers to them is.", NULL},
    {"sizes", pins_sizes, NULL, "Where an array of their lengths is, in 32 bits.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot pins_slots[] = {
    {Py_tp_doc, "A tuple of payloads, which stay where they are."},
    {Py_tp_new, pins_new},
    {Py_tp_dealloc, pins_dealloc},
    {Py_tp_traverse, pins_traverse},
    {Py_tp_getset, pins_attributes},
    {Py_sq_length, pins_length},
    {0, NULL},
};

static PyType_Spec pins_spec = {
    .name = "copyrpc._guards.Pins",
    .basicsize = sizeof(struct pins),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = pins_slots,
};

/* Of what a batch still waits for, `count` is there. Returns 0, or -1 with an exception set. */
static int less_left(PyObject *batch, Py_ssize_t count)
{
    PyObject *left = PyObject_GetAttrString(batch, "left");
    PyObject *less = left != NULL ? PyLong_FromSsize_t(PyLong_AsSsize_t(left) - count) : NULL;
    int status = less != NULL ? PyObject_SetAttrString(batch, "left", less) : -1;
    Py_XDECREF(less);
    Py_XDECREF(left);
    return status;
}

/* copy_spans(batch, results, low, ids, spans, count): results[id - low] becomes a copy of its span, as bytes; so many are `left` less, and the
 * count, whose address is given, becomes 0. No signal handler runs in between. */
static PyObject *copy_spans(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    (void)module;
    if (argument_count != 6 || !PyList_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "copy_spans() takes a batch, its list, and four numbers");
        return NULL;
    }
    const uint64_t low = PyLong_AsUnsignedLongLong(arguments[2]);
    const uint64_t *ids = PyLong_AsVoidPtr(arguments[3]);
    const struct span *spans = PyLong_AsVoidPtr(arguments[4]);
    uint32_t *count = PyLong_AsVoidPtr(arguments[5]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    for (uint32_t i = 0; i < *count; i++) {
        PyObject *copy = PyBytes_FromStringAndSize((const char *)(uintptr_t)spans[i].begin,
                                                   (Py_ssize_t)(spans[i].end - spans[i].begin));
        if (copy == NULL || PyList_SetItem(arguments[1], (Py_ssize_t)(ids[i] - low), copy) < 0) {
            return NULL;
        }
    }
    if (less_left(arguments[0], (Py_ssize_t)*count) < 0) {
        return NULL;
    }
    *count = 0;
    Py_RETURN_NONE;
}

/* settle(batch, results, index, result): puts a result where there is none yet, and one is `left` less, in one step. */
static PyObject *settle(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    (void)module;
    const Py_ssize_t index = argument_count == 4 ? PyLong_AsSsize_t(arguments[2]) : -1;
    if (index < 0 || !PyList_CheckExact(arguments[1]) || index >= PyList_GET_SIZE(arguments[1])) {
        PyErr_SetString(PyExc_TypeError,
                        "settle() takes a batch, its list, an index of that, and a result");
        return NULL;
    }
    if (PyList_GET_ITEM(arguments[1], index) == Py_None) {
        if (less_left(arguments[0], 1) < 0) {
            return NULL;
        }
        Py_INCREF(arguments[3]);
        (void)PyList_SetItem(arguments[1], index, arguments[3]);
    }
    Py_RETURN_NONE;
}

void *copyrpc_pins_address(PyObject *object)
{
    if (!Py_IS_TYPE(object, pins_type)) {
        return NULL;
    }
    struct pins *self = (struct pins *)object;
    return PyTuple_GET_SIZE(self->payloads) > 0 ? self->addresses[0] : NULL;
}

static PyMethodDef payloads_functions[] = {
    {"copy_spans", (PyCFunction)(void (*)(void))copy_spans, METH_FASTCALL, NULL},
    {"settle", (PyCFunction)(void (*)(void))settle, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int copyrpc_payloads_add(PyObject *module)
{
    return PyModule_AddFunctions(module, payloads_functions) < 0
               ? -1
               : copyrpc_type_add(module, &pins_spec, &pins_type);
}

/* attempt.c: blocks that end with a step which must not be left out: `with Attempt(use, step, ...)` and `with Last(step, ...)`.
 *
 * What `except` and `finally` begin with can be cut: Python 3.9 runs signal handlers between any two of its instructions, also before
 * the first one there, and the exception of a second signal would leave the step out. Here the step is called by C. And as long as the
 * block runs, the object lives on the stack of its frame and nowhere else. So if even __exit__ is left out, which Python 3.9 may do, the
 * object ends with the frame's stack, and the step is done then. */
#include "guards.h"

struct attempt {
    PyObject_HEAD PyObject *use; /* whose lock the block has, or NULL */
    PyObject *step, *arguments;
    int is_last; /* the step comes after success, too */
    int entered; /* and not left yet */
};

static PyTypeObject *attempt_type, *last_type;

/* Leaves the block, with an exception set or not. Returns 0, or -1 with an exception set, which came in the step. */
static int leave(struct attempt *self, int failed)
{
    PyObject *result = NULL;
    int wanted = failed || self->is_last;
    self->entered = 0;
    if (wanted) {
        result = copyrpc_through(self->step, self->arguments);
    }
    if (self->use != NULL) {
        copyrpc_use_let_go(self->use);
    }
    Py_XDECREF(result);
    return wanted && result == NULL ? -1 : 0;
}

static PyObject *attempt_enter(PyObject *object, PyObject *none)
{
    struct attempt *self = (struct attempt *)object;
    (void)none;
    if (self->use != NULL && copyrpc_use_take(self->use) < 0) {
        return NULL;
    }
    self->entered = 1;
    Py_RETURN_NONE;
}

static PyObject *attempt_exit(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    struct attempt *self = (struct attempt *)object;
    if (self->entered && leave(self, count > 0 && arguments[0] != Py_None) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Of both types: `use` is the first argument of the one that has it. */
static PyObject *make(PyTypeObject *type, PyObject *arguments, int is_last)
{
    Py_ssize_t first = is_last ? 0 : 1, count = PyTuple_GET_SIZE(arguments);
    if (count <= first) {
        PyErr_SetString(PyExc_TypeError, "there is no step");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(arguments, first + 1, count);
    struct attempt *self = rest != NULL ? (struct attempt *)PyType_GenericAlloc(type, 0) : NULL;
    if (self == NULL) {
        Py_XDECREF(rest);
        return NULL;
    }
    self->arguments = rest;
    self->step = PyTuple_GET_ITEM(arguments, first);
    Py_INCREF(self->step);
    self->is_last = is_last;
    if (!is_last && PyTuple_GET_ITEM(arguments, 0) != Py_None) {
        self->use = PyTuple_GET_ITEM(arguments, 0);
        Py_INCREF(self->use);
    }
    return (PyObject *)self;
}

static PyObject *attempt_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)keywords;
    if (PyTuple_GET_SIZE(arguments) > 0 && PyTuple_GET_ITEM(arguments, 0) != Py_None &&
        !copyrpc_is_use(PyTuple_GET_ITEM(arguments, 0))) {
        PyErr_SetString(PyExc_TypeError, "an Attempt begins with a Use, or None");
        return NULL;
    }
    return make(type, arguments, 0);
}

static PyObject *last_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)keywords;
    return make(type, arguments, 1);
}

static void attempt_dealloc(PyObject *object)
{
    struct attempt *self = (struct attempt *)object;
    if (self->entered) { /* cut before __exit__, and the exception is on its way */
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        if (leave(self, 1) < 0) {
            PyErr_Clear(); /* there is one already */
        }
        PyErr_Restore(type, value, trace);
    }
    Py_XDECREF(self->use);
    Py_XDECREF(self->step);
    Py_XDECREF(self->arguments);
    copyrpc_free_plain(object);
}

static PyMethodDef attempt_methods[] = {
    {"__enter__", attempt_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))attempt_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot attempt_slots[] = {
    {Py_tp_doc, "Takes a lock for a block. If an exception ends the block, a step is done before "
                "the lock is let go."},
    {Py_tp_new, attempt_new},
    {Py_tp_dealloc, attempt_dealloc},
    {Py_tp_methods, attempt_methods},
    {0, NULL},
};

static PyType_Slot last_slots[] = {
    {Py_tp_doc, "Does a step at the end of a block, whatever ends it."},
    {Py_tp_new, last_new},
    {Py_tp_dealloc, attempt_dealloc},
    {Py_tp_methods, attempt_methods},
    {0, NULL},
};

static PyType_Spec attempt_spec = {
    .name = "copyrpc._guards.Attempt",
    .basicsize = sizeof(struct attempt),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = attempt_slots,
};

static PyType_Spec last_spec = {
    .name = "copyrpc._guards.Last",
    .basicsize = sizeof(struct attempt),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = last_slots,
};

int copyrpc_attempt_add(PyObject *module)
{
    return copyrpc_type_add(module, &attempt_spec, &attempt_type) < 0
               ? -1
               : copyrpc_type_add(module, &last_spec, &last_type);
}

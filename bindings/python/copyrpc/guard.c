/* guard.c: steps that an exception of a signal handler must not cut in two. */
#include "guards.h"

#include <structmember.h>

static PyTypeObject *tally_type;

/* How often a step is tried. A step that fails by itself fails each time. */
#define TRIES_MAX 100

/* Keeps the first exception of the tries. */
struct tries {
    PyObject *type, *value, *trace;
    int count;
};

/* After a try. Tells whether there is to be another. */
static int tries_again(struct tries *tries, PyObject *result)
{
    if (result == NULL && tries->type == NULL) {
        PyErr_Fetch(&tries->type, &tries->value, &tries->trace);
    }
    PyErr_Clear();
    return result == NULL && ++tries->count < TRIES_MAX;
}

static PyObject *tries_over(struct tries *tries, PyObject *result)
{
    if (tries->type != NULL) {
        Py_CLEAR(result);
        PyErr_Restore(tries->type, tries->value, tries->trace);
    }
    return result;
}

/* through(step, *arguments): calls step(*arguments) until it has come to its end, and returns what
 * it returned. An exception that came in between, a signal handler's, is raised after that. The step
 * goes on where it was cut. */
static PyObject *guard_through(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "through() takes a function");
        return NULL;
    }
    struct tries tries = {0};
    PyObject *result;
    do {
        result = PyObject_Vectorcall(arguments[0], arguments + 1, (size_t)(count - 1), NULL);
    } while (tries_again(&tries, result));
    return tries_over(&tries, result);
}

PyObject *copyrpc_through(PyObject *step, PyObject *arguments)
{
    struct tries tries = {0};
    PyObject *result;
    do {
        result = PyObject_CallObject(step, arguments);
    } while (tries_again(&tries, result));
    return tries_over(&tries, result);
}

/* How many of the things that came were handed out. */
struct tally {
    PyObject_HEAD Py_ssize_t value;
};

/* put(queue, item): appends and counts in one step. What is put is never put again, and what is
 * counted is there. */
static PyObject *guard_put(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "put() takes a queue and an item");
        return NULL;
    }
    PyObject *done = PyObject_CallMethod(arguments[0], "append", "(O)", arguments[1]);
    if (done == NULL) {
        return NULL;
    }
    Py_DECREF(done);
    ((struct tally *)object)->value++;
    Py_RETURN_NONE;
}

unsigned long long copyrpc_tally_next(PyObject *object)
{
    return (unsigned long long)++((struct tally *)object)->value;
}

/* take(queue, list): moves the first item of a deque to the end of a list, in one step. */
static PyObject *guard_take(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyList_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "take() takes a deque and a list");
        return NULL;
    }
    PyObject *item = PyObject_CallMethod(arguments[0], "popleft", NULL);
    if (item != NULL && PyList_Append(arguments[1], item) < 0) {
        Py_CLEAR(item);
    }
    return item;
}

static PyMethodDef tally_methods[] = {
    {"put", (PyCFunction)(void (*)(void))guard_put, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef tally_members[] = {
    {"value", T_PYSSIZET, offsetof(struct tally, value), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot tally_slots[] = {
    {Py_tp_doc, "How many of the things that came were handed out."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_methods, tally_methods},
    {Py_tp_members, tally_members},
    {0, NULL},
};

static PyType_Spec tally_spec = {
    .name = "copyrpc._guards.Tally",
    .basicsize = sizeof(struct tally),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tally_slots,
};

static PyMethodDef guard_functions[] = {
    {"through", (PyCFunction)(void (*)(void))guard_through, METH_FASTCALL, NULL},
    {"take", (PyCFunction)(void (*)(void))guard_take, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int copyrpc_guard_add(PyObject *module)
{
    return PyModule_AddFunctions(module, guard_functions) < 0
               ? -1
               : copyrpc_type_add(module, &tally_spec, &tally_type);
}

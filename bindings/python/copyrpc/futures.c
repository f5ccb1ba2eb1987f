/* futures.c: calls of coroutines: from the outbox of a loop into ops, and from results into their futures. What each call
 * needs of this in Python would be most of what it costs. */
#include "guards.h"

#include <copyrpc.h>
#include <structmember.h>
#include <time.h>

#include "native.h"

static PyTypeObject *awaited_type, *results_type;
static PyObject *name_of_done, *name_of_set_result, *name_of_outbox;

/* A pending call of a coroutine's. */
struct awaited {
    PyObject_HEAD PyObject *attachment;
    PyObject *future;
    unsigned long long id; /* in its user_data; 0 before it is in the outbox */
};

static PyObject *awaited_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *attachment, *future;
    if (keywords != NULL || !PyArg_UnpackTuple(arguments, "Awaited", 2, 2, &attachment, &future)) {
        PyErr_SetString(PyExc_TypeError, "Awaited takes an attachment and a future");
        return NULL;
    }
    struct awaited *self = (struct awaited *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        Py_INCREF(attachment);
        Py_INCREF(future);
        self->attachment = attachment;
        self->future = future;
    }
    return (PyObject *)self;
}

/* post(use, ids, pendings, entry): gives the call its id, and puts it into the pendings and its attachment's outbox. Takes the lock;
 * no signal handler runs once it has it. */
static PyObject *awaited_post(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    struct awaited *self = (struct awaited *)object;
    if (count != 4 || !PyDict_CheckExact(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "post() takes a Use, a Tally, a dict and an entry");
        return NULL;
    }
    if (copyrpc_use_take(arguments[0]) < 0) {
        return NULL;
    }
    int status = -1;
    PyObject *outbox =
        PyObject_GetAttr(self->attachment, name_of_outbox); /* others change it, with the lock */
    PyObject *id = PyLong_FromUnsignedLongLong(copyrpc_tally_next(arguments[1]));
    if (outbox != NULL && id != NULL && PyDict_SetItem(arguments[2], id, object) == 0) {
        status = PyDict_SetItem(outbox, id, arguments[3]);
        if (status < 0) {
            (void)PyDict_DelItem(arguments[2], id);
        } else {
            self->id = PyLong_AsUnsignedLongLong(id);
        }
    }
    copyrpc_use_let_go(arguments[0]);
    Py_XDECREF(outbox);
    Py_XDECREF(id);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* _finish(status, address, size): what comes otherwise than by Results.hand_out. */
static PyObject *awaited_finish(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    struct awaited *self = (struct awaited *)object;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "_finish() takes a status, an address and a size");
        return NULL;
    }
    return PyObject_CallMethod(self->attachment, "finish", "OOOO", self->future, arguments[0],
                               arguments[1], arguments[2]);
}

static int awaited_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct awaited *self = (struct awaited *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->attachment);
    Py_VISIT(self->future);
    return 0;
}

static int awaited_clear(PyObject *object)
{
    struct awaited *self = (struct awaited *)object;
    Py_CLEAR(self->attachment);
    Py_CLEAR(self->future);
    return 0;
}

static void awaited_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    awaited_clear(object);
    copyrpc_free_collected(object);
}

static PyMethodDef awaited_methods[] = {
    {"post", (PyCFunction)(void (*)(void))awaited_post, METH_FASTCALL, NULL},
    {"_finish", (PyCFunction)(void (*)(void))awaited_finish, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef awaited_members[] = {
    {"id", T_ULONGLONG, offsetof(struct awaited, id), READONLY, "0 before it is in the outbox."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot awaited_slots[] = {
    {Py_tp_doc, "A pending call, whose answer goes to a future of the attachment's loop."},
    {Py_tp_new, awaited_new},
    {Py_tp_dealloc, awaited_dealloc},
    {Py_tp_traverse, awaited_traverse},
    {Py_tp_clear, awaited_clear},
    {Py_tp_methods, awaited_methods},
    {Py_tp_members, awaited_members},
    {0, NULL},
};

static PyType_Spec awaited_spec = {
    .name = "copyrpc._guards.Awaited",
    .basicsize = sizeof(struct awaited),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = awaited_slots,
};

/* ---- Results ---- */

/* The results of a poll, and how many of them were handed out. */
struct results {
    PyObject_HEAD const struct copyrpc_native_result *array;
    Py_ssize_t taken;
};

/* The loop's own thread does this. A future that is done was canceled, or has its result from an attempt that was cut. */
static int give(PyObject *future, const struct copyrpc_native_result *result)
{
    PyObject *called[] = {future, NULL};
    PyObject *done =
        PyObject_VectorcallMethod(name_of_done, called, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (done == NULL) {
        return -1;
    }
    int is_done = PyObject_IsTrue(done);
    Py_DECREF(done);
    if (is_done != 0) {
        return is_done < 0 ? -1 : 0;
    }
    PyObject *payload = PyBytes_FromStringAndSize((const char *)(uintptr_t)result->address,
                                                  (Py_ssize_t)result->bytes);
    if (payload == NULL) {
        return -1;
    }
    called[1] = payload;
    PyObject *none = PyObject_VectorcallMethod(name_of_set_result, called,
                                               2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(payload);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

/* Returns 1 if it has handed the result out, 0 if it is not for this function, -1 with an exception set. */
static int hand_one(const struct copyrpc_native_result *result, PyObject *pendings,
                    PyObject *attachment)
{
    PyObject *id = PyLong_FromUnsignedLongLong(result->id);
    if (id == NULL) {
        return -1;
    }
    int status = 0;
    PyObject *pending = PyDict_GetItemWithError(pendings, id);
    if (pending == NULL) {
        status = PyErr_Occurred() ? -1 : 0;
    } else if (Py_IS_TYPE(pending, awaited_type) && result->status == 0 &&
               ((struct awaited *)pending)->attachment == attachment) {
        PyObject *future = ((struct awaited *)pending)->future;
        Py_INCREF(future);
        status = give(future, result) < 0 || PyDict_DelItem(pendings, id) < 0 ? -1 : 1;
        Py_DECREF(future);
    }
    Py_DECREF(id);
    return status;
}

/* hand_out(count, pendings, attachment): gives good answers to their futures, up to a result that is for something else. Returns
 * that as a tuple, which the caller hands out and counts; or None, if the first `count` results are handed out. Goes on where it
 * was cut. */
static PyObject *results_hand_out(PyObject *object, PyObject *const *arguments,
                                  Py_ssize_t argument_count)
{
    struct results *self = (struct results *)object;
    if (argument_count != 3 || !PyDict_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "hand_out() takes a number, a dict and an attachment");
        return NULL;
    }
    const Py_ssize_t count = PyLong_AsSsize_t(arguments[0]);
    if (count < 0 && PyErr_Occurred()) {
        return NULL;
    }
    for (; self->taken < count; self->taken++) {
        const struct copyrpc_native_result *result = &self->array[self->taken];
        int status = hand_one(result, arguments[1], arguments[2]);
        if (status < 0) {
            return NULL;
        }
        if (status == 0) {
            return Py_BuildValue("KLKK", (unsigned long long)result->id, (long long)result->status,
                                 (unsigned long long)result->address,
                                 (unsigned long long)result->bytes);
        }
    }
    Py_RETURN_NONE;
}

static PyObject *results_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"address", NULL};
    unsigned long long address;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "K", names, &address)) {
        return NULL;
    }
    struct results *self = (struct results *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->array = (const struct copyrpc_native_result *)(uintptr_t)address;
    }
    return (PyObject *)self;
}

static PyMethodDef results_methods[] = {
    {"hand_out", (PyCFunction)(void (*)(void))results_hand_out, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef results_members[] = {
    {"taken", T_PYSSIZET, offsetof(struct results, taken), 0, "How many were handed out."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot results_slots[] = {
    {Py_tp_doc, "The results of a poll."},
    {Py_tp_new, results_new},
    {Py_tp_methods, results_methods},
    {Py_tp_members, results_members},
    {0, NULL},
};

static PyType_Spec results_spec = {
    .name = "copyrpc._guards.Results",
    .basicsize = sizeof(struct results),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = results_slots,
};

/* ---- The outbox ---- */

/* The members of an entry. */
enum {
    BITS,
    PAYLOAD,
    BYTES,
    METHOD,
    REPLY_BYTES_MAX,
    DEADLINE,
    FLAGS,
    OFFSET,
    REGION,
    ENTRY_LENGTH
};

static uint64_t number(PyObject *entry, int member)
{
    return PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(entry, member));
}

/* What is left of the time, at least a moment: 0 would be no limit. */
static uint64_t until(uint64_t deadline_ns)
{
    struct timespec now;
    if (deadline_ns == 0) {
        return 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return deadline_ns > now_ns ? deadline_ns - now_ns : 1;
}

static void fill(crpc_op *op, void **payload, PyObject *user_data, PyObject *entry)
{
    PyObject *pinned = PyTuple_GET_ITEM(entry, PAYLOAD);
    *payload =
        PyBytes_CheckExact(pinned) ? PyBytes_AS_STRING(pinned) : copyrpc_pins_address(pinned);
    *op = (crpc_op){
        .opcode = CRPC_OP_CALL,
        .flags = (uint8_t)number(entry, FLAGS),
        .method = (uint16_t)number(entry, METHOD),
        .endpoint = {number(entry, BITS)},
        .user_data = COPYRPC_NATIVE_MARK | PyLong_AsUnsignedLongLong(user_data),
        .payload_offset = number(entry, OFFSET),
        .payload_bytes = (uint32_t)number(entry, BYTES),
        .reply_bytes_max = (uint32_t)number(entry, REPLY_BYTES_MAX),
        .timeout_ns = until(number(entry, DEADLINE)),
        .region = {number(entry, REGION)},
    };
}

/* fill_calls(outbox, ops, payloads, most): makes ops of the first entries of the outbox, `most` at the most. Returns their
 * user_data, as a list. */
static PyObject *fill_calls(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    (void)module;
    if (argument_count != 4 || !PyDict_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "fill_calls() takes a dict and three numbers");
        return NULL;
    }
    crpc_op *ops = PyLong_AsVoidPtr(arguments[1]);
    void **payloads = PyLong_AsVoidPtr(arguments[2]);
    const Py_ssize_t most = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    const Py_ssize_t size = PyDict_GET_SIZE(arguments[0]);
    const Py_ssize_t count = size < most ? size : most;
    PyObject *filled = PyList_New(count), *user_data, *entry;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; filled != NULL && i < count; i++) {
        PyDict_Next(arguments[0], &position, &user_data, &entry);
        if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != ENTRY_LENGTH) {
            PyErr_SetString(PyExc_TypeError, "an entry of the outbox has nine members");
        } else {
            fill(&ops[i], &payloads[i], user_data, entry);
        }
        if (PyErr_Occurred()) {
            Py_CLEAR(filled);
        } else {
            Py_INCREF(user_data);
            PyList_SET_ITEM(filled, i, user_data);
        }
    }
    return filled;
}

static PyMethodDef futures_functions[] = {
    {"fill_calls", (PyCFunction)(void (*)(void))fill_calls, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int copyrpc_futures_add(PyObject *module)
{
    name_of_done = PyUnicode_InternFromString("done");
    name_of_set_result = PyUnicode_InternFromString("set_result");
    name_of_outbox = PyUnicode_InternFromString("outbox");
    if (name_of_done == NULL || name_of_set_result == NULL || name_of_outbox == NULL) {
        return -1;
    }
    if (PyModule_AddFunctions(module, futures_functions) < 0 ||
        copyrpc_type_add(module, &awaited_spec, &awaited_type) < 0) {
        return -1;
    }
    return copyrpc_type_add(module, &results_spec, &results_type);
}

/* hold.c: the lock of a context, and sleeping without it.
 *
 * Python runs a signal handler after a C function returns, not inside. So the lock is taken and
 * noted in one C function: `with` either has it and gives it back, or does not have it. A thread
 * that sleeps without the lock has it again when an exception comes. */
#include "guards.h"

#include <poll.h>
#include <pythread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <structmember.h>
#include <time.h>
#include <unistd.h>

static PyTypeObject *hold_type, *use_type;

struct hold {
    PyObject_HEAD PyThread_type_lock lock;
    atomic_ulong owner; /* the thread that holds it, 0 if none does */
    atomic_int contenders;
    PyObject *busy; /* makes the exception for a thread that holds it already */
};

/* The lock, for who needs what it guards to be open. */
struct use {
    PyObject_HEAD struct hold *hold;
    PyObject *pointer; /* None when it is closed */
    PyObject *gone;    /* makes the exception for that */
};

static void raise_made_by(PyObject *maker)
{
    PyObject *error = PyObject_CallObject(maker, NULL);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
}

static int is_mine(struct hold *hold)
{
    return atomic_load_explicit(&hold->owner, memory_order_relaxed) == PyThread_get_thread_ident();
}

/* Waits for the lock, for `timeout_us`, -1 is no limit. Returns 1 with the lock; 0 if the time is
 * over; -1 with an exception set, which a signal handler raised. */
static int take(struct hold *hold, long long timeout_us)
{
    int taken = PyThread_acquire_lock(hold->lock, NOWAIT_LOCK);
    if (!taken && timeout_us != 0) {
        atomic_fetch_add(&hold->contenders,
                         1); /* a leader that is always busy lets others have a go */
        PyLockStatus status;
        do {
            Py_BEGIN_ALLOW_THREADS status = PyThread_acquire_lock_timed(hold->lock, timeout_us, 1);
            Py_END_ALLOW_THREADS
        } while (status == PY_LOCK_INTR && PyErr_CheckSignals() == 0);
        atomic_fetch_sub(&hold->contenders, 1);
        if (status == PY_LOCK_INTR) {
            return -1;
        }
        taken = status == PY_LOCK_ACQUIRED;
    }
    if (taken) {
        atomic_store_explicit(&hold->owner, PyThread_get_thread_ident(), memory_order_relaxed);
    }
    return taken;
}

static void let_go(struct hold *hold)
{
    atomic_store_explicit(&hold->owner, 0, memory_order_relaxed);
    PyThread_release_lock(hold->lock);
}

/* Takes the lock again. Signal handlers run later. */
static void take_again(struct hold *hold)
{
    if (!PyThread_acquire_lock(hold->lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS PyThread_acquire_lock(hold->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    atomic_store_explicit(&hold->owner, PyThread_get_thread_ident(), memory_order_relaxed);
}

static int must_not_hold(struct hold *hold)
{
    if (is_mine(hold)) {
        raise_made_by(hold->busy);
        return -1;
    }
    return 0;
}

static int must_hold(struct hold *hold)
{
    if (!is_mine(hold)) {
        PyErr_SetString(PyExc_RuntimeError, "this thread does not have the lock");
        return -1;
    }
    return 0;
}

/* Whether signal handlers run where their exception leaves __exit__ out, so that the lock would stay taken for good. Python 3.9 runs them between
 * any two instructions, 3.10 where it goes on after an exception, so also before __exit__ hears of one, and 3.14 between the end of __enter__
 * and the beginning of the block (codegen_with in its codegen.c: CALL, and then SETUP_WITH). A module of the stable ABI runs in versions with and without. */
static int exit_can_be_left_out(void)
{
#if PY_VERSION_HEX < 0x030B0000
    return 1;
#else
    return Py_Version >= 0x030E0000;
#endif
}

/* `with` looks __exit__ up before it calls __enter__, and keeps what it finds on the stack of the frame until the end. So what it finds there is an
 * object of its own each time, which lets go of the lock when it is called, and otherwise when it ends, with the frame's stack. */
struct way_out {
    PyObject_HEAD PyObject *owner; /* a Hold or a Use */
    struct hold *hold;
    int has_lock; /* by the __enter__ that came right after the look-up */
};

static PyTypeObject *way_out_type, *exit_type;
static struct way_out *newest_way_out; /* that no __enter__ has seen yet */

/* At the beginning of __enter__, before anything else can run. */
static struct way_out *way_out_of(struct hold *hold)
{
    struct way_out *found = newest_way_out;
    newest_way_out = NULL;
    return found != NULL && found->hold == hold ? found : NULL;
}

/* When the lock is taken, which may have taken a while: the frame that looked this up is calling, and has it still. */
static void way_out_armed(struct way_out *way_out)
{
    if (way_out != NULL) {
        way_out->has_lock = 1;
    }
}

static PyObject *way_out_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    struct way_out *self = (struct way_out *)object;
    (void)arguments;
    (void)keywords;
    self->has_lock = 0;
    if (is_mine(self->hold)) { /* a child of fork() has a new lock */
        let_go(self->hold);
    }
    Py_RETURN_NONE;
}

static void way_out_dealloc(PyObject *object)
{
    struct way_out *self = (struct way_out *)object;
    if (newest_way_out == self) {
        newest_way_out = NULL;
    }
    if (self->has_lock && is_mine(self->hold)) {
        let_go(self->hold);
    }
    Py_XDECREF(self->owner);
    copyrpc_free_plain(object);
}

static struct hold *hold_of(PyObject *owner);

/* The attribute __exit__ of both types. */
static PyObject *exit_get(PyObject *object, PyObject *owner, PyObject *type)
{
    (void)type;
    if (owner == NULL) {
        Py_INCREF(object);
        return object;
    }
    struct way_out *made = (struct way_out *)PyType_GenericAlloc(way_out_type, 0);
    if (made != NULL) {
        Py_INCREF(owner);
        made->owner = owner;
        made->hold = hold_of(owner);
        newest_way_out = made;
    }
    return (PyObject *)made;
}

static PyType_Slot way_out_slots[] = {
    {Py_tp_call, way_out_call},
    {Py_tp_dealloc, way_out_dealloc},
    {0, NULL},
};

static PyType_Spec way_out_spec = {
    .name = "copyrpc._guards.WayOut",
    .basicsize = sizeof(struct way_out),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = way_out_slots,
};

static PyType_Slot exit_slots[] = {
    {Py_tp_descr_get, exit_get},
    {0, NULL},
};

static PyType_Spec exit_spec = {
    .name = "copyrpc._guards.Exit",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = exit_slots,
};

static int has_exit(PyTypeObject *type)
{
    PyObject *made = PyType_GenericAlloc(exit_type, 0);
    int status = made != NULL ? PyObject_SetAttrString((PyObject *)type, "__exit__", made) : -1;
    Py_XDECREF(made);
    return status;
}

static PyObject *hold_enter(PyObject *object, PyObject *none)
{
    struct hold *self = (struct hold *)object;
    struct way_out *way_out = way_out_of(self);
    (void)none;
    if (must_not_hold(self) < 0 || take(self, -1) < 0) {
        return NULL;
    }
    way_out_armed(way_out);
    Py_RETURN_NONE;
}

static PyObject *hold_exit(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    struct hold *self = (struct hold *)object;
    (void)arguments;
    (void)count;
    if (is_mine(self)) { /* a child of fork() has a new lock */
        let_go(self);
    }
    Py_RETURN_NONE;
}

/* acquire(seconds): returns False if the time is over, or if this thread has the lock already.
 * Below 0 means no limit. */
static PyObject *hold_acquire(PyObject *object, PyObject *seconds)
{
    struct hold *self = (struct hold *)object;
    double limit = PyFloat_AsDouble(seconds);
    if (limit == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    if (limit < 0 && must_not_hold(self) < 0) {
        return NULL;
    }
    int taken = is_mine(self) ? 0 : take(self, limit < 0 ? -1 : (long long)(limit * 1e6));
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

/* let_others(): gives threads that wait for the lock a chance to get it. */
static PyObject *hold_let_others(PyObject *object, PyObject *none)
{
    struct hold *self = (struct hold *)object;
    (void)none;
    if (must_hold(self) < 0) {
        return NULL;
    }
    let_go(self);
    Py_BEGIN_ALLOW_THREADS(void) poll(NULL, 0, 0);
    Py_END_ALLOW_THREADS take_again(self);
    Py_RETURN_NONE;
}

/* sleep(fd, wake_fd, timeout_ns): sleeps without the lock, until one of two descriptors is readable,
 * a signal arrives, or the time is over. Empties wake_fd. */
static PyObject *hold_sleep(PyObject *object, PyObject *arguments)
{
    struct hold *self = (struct hold *)object;
    int fd, wake_fd;
    unsigned long long timeout_ns;
    if (!PyArg_ParseTuple(arguments, "iiK", &fd, &wake_fd, &timeout_ns) || must_hold(self) < 0) {
        return NULL;
    }
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                               .tv_nsec = (long)(timeout_ns % 1000000000u)};
    let_go(self);
    Py_BEGIN_ALLOW_THREADS if (ppoll(fds, 2, &timeout, NULL) > 0 && fds[1].revents)
    {
        uint64_t number;
        ssize_t got = read(wake_fd, &number, sizeof(number));
        (void)got; /* another may have emptied it */
    }
    Py_END_ALLOW_THREADS take_again(self);
    Py_RETURN_NONE;
}

/* follow(followers, waiter, acquire, seconds): puts `waiter` in the list while acquire(True,
 * seconds) sleeps, without the lock. Returns what that returns. */
static PyObject *hold_follow(PyObject *object, PyObject *arguments)
{
    struct hold *self = (struct hold *)object;
    PyObject *followers, *waiter, *acquire;
    double seconds;
    if (!PyArg_ParseTuple(arguments, "O!OOd", &PyList_Type, &followers, &waiter, &acquire,
                          &seconds) ||
        must_hold(self) < 0 || PyList_Append(followers, waiter) < 0) {
        return NULL;
    }
    let_go(self);
    PyObject *result = PyObject_CallFunction(acquire, "Od", Py_True, seconds);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    take_again(self);
    for (Py_ssize_t i = PyList_GET_SIZE(followers) - 1; i >= 0; i--) {
        if (PyList_GET_ITEM(followers, i) == waiter) {
            (void)PyList_SetSlice(followers, i, i + 1, NULL);
        }
    }
    PyErr_Restore(type, value, trace);
    return result;
}

/* renew(): in a child of fork(), where a thread that is not there may have the lock. */
static PyObject *hold_renew(PyObject *object, PyObject *none)
{
    struct hold *self = (struct hold *)object;
    (void)none;
    PyThread_type_lock lock = PyThread_allocate_lock();
    if (lock == NULL) {
        return PyErr_NoMemory();
    }
    self->lock = lock; /* the old one may be in use, and cannot be freed */
    atomic_store(&self->owner, 0);
    atomic_store(&self->contenders, 0);
    Py_RETURN_NONE;
}

static PyObject *hold_contenders(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLong(
        atomic_load_explicit(&((struct hold *)object)->contenders, memory_order_relaxed));
}

static PyObject *hold_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"busy", NULL};
    PyObject *busy;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O", names, &busy)) {
        return NULL;
    }
    struct hold *self = (struct hold *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    Py_INCREF(busy);
    self->busy = busy;
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void hold_dealloc(PyObject *object)
{
    struct hold *self = (struct hold *)object;
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    Py_XDECREF(self->busy);
    copyrpc_free_plain(object);
}

static PyMethodDef hold_methods[] = {
    {"__enter__", hold_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))hold_exit, METH_FASTCALL, NULL},
    {"acquire", hold_acquire, METH_O, NULL},
    {"let_others", hold_let_others, METH_NOARGS, NULL},
    {"sleep", hold_sleep, METH_VARARGS, NULL},
    {"follow", hold_follow, METH_VARARGS, NULL},
    {"renew", hold_renew, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef hold_attributes[] = {
    {"contenders", hold_contenders, NULL, "How many threads wait for the lock.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot hold_slots[] = {
    {Py_tp_doc, "The lock of a context."}, {Py_tp_new, hold_new},
    {Py_tp_dealloc, hold_dealloc},         {Py_tp_methods, hold_methods},
    {Py_tp_getset, hold_attributes},       {0, NULL},
};

static PyType_Spec hold_spec = {
    .name = "copyrpc._guards.Hold",
    .basicsize = sizeof(struct hold),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = hold_slots,
};

static struct hold *hold_of(PyObject *owner)
{
    return Py_IS_TYPE(owner, use_type) ? ((struct use *)owner)->hold : (struct hold *)owner;
}

int copyrpc_is_use(PyObject *object)
{
    return Py_IS_TYPE(object, use_type);
}

int copyrpc_use_take(PyObject *object)
{
    struct use *self = (struct use *)object;
    if (self->pointer ==
        Py_None) { /* before the lock: it may be held for as long as closing takes */
        raise_made_by(self->gone);
        return -1;
    }
    if (must_not_hold(self->hold) < 0 || take(self->hold, -1) < 0) {
        return -1;
    }
    if (self->pointer == Py_None) {
        let_go(self->hold);
        raise_made_by(self->gone);
        return -1;
    }
    return 0;
}

void copyrpc_use_let_go(PyObject *object)
{
    struct hold *hold = ((struct use *)object)->hold;
    if (is_mine(hold)) { /* a child of fork() has a new lock */
        let_go(hold);
    }
}

static PyObject *use_enter(PyObject *object, PyObject *none)
{
    struct way_out *way_out = way_out_of(((struct use *)object)->hold);
    (void)none;
    if (copyrpc_use_take(object) < 0) {
        return NULL;
    }
    way_out_armed(way_out);
    PyObject *pointer = ((struct use *)object)->pointer;
    Py_INCREF(pointer);
    return pointer;
}

static PyObject *use_exit(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    return hold_exit((PyObject *)((struct use *)object)->hold, arguments, count);
}

static PyObject *use_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"hold", "pointer", "gone", NULL};
    PyObject *hold, *pointer, *gone;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OO", names, hold_type, &hold, &pointer,
                                     &gone)) {
        return NULL;
    }
    struct use *self = (struct use *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        Py_INCREF(hold);
        Py_INCREF(pointer);
        Py_INCREF(gone);
        self->hold = (struct hold *)hold;
        self->pointer = pointer;
        self->gone = gone;
    }
    return (PyObject *)self;
}

static int use_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct use *self = (struct use *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->pointer);
    Py_VISIT(self->gone);
    return 0;
}

static int use_clear(PyObject *object)
{
    struct use *self = (struct use *)object;
    PyObject *gone = self->gone;
    Py_INCREF(Py_None);
    self->gone = Py_None;
    Py_XDECREF(gone);
    return 0;
}

static void use_dealloc(PyObject *object)
{
    struct use *self = (struct use *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF((PyObject *)self->hold);
    Py_XDECREF(self->pointer);
    Py_XDECREF(self->gone);
    copyrpc_free_collected(object);
}

static PyMethodDef use_methods[] = {
    {"__enter__", use_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))use_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef use_members[] = {
    {"pointer", T_OBJECT, offsetof(struct use, pointer), 0, "What `with` gives."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot use_slots[] = {
    {Py_tp_doc, "`with use as pointer` takes the lock, if `pointer` is not None."},
    {Py_tp_new, use_new},
    {Py_tp_dealloc, use_dealloc},
    {Py_tp_traverse, use_traverse},
    {Py_tp_clear, use_clear},
    {Py_tp_methods, use_methods},
    {Py_tp_members, use_members},
    {0, NULL},
};

static PyType_Spec use_spec = {
    .name = "copyrpc._guards.Use",
    .basicsize = sizeof(struct use),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = use_slots,
};

int copyrpc_hold_add(PyObject *module)
{
    if (copyrpc_type_add(module, &hold_spec, &hold_type) < 0 ||
        copyrpc_type_add(module, &use_spec, &use_type) < 0) {
        return -1;
    }
    if (exit_can_be_left_out() && (copyrpc_type_add(module, &way_out_spec, &way_out_type) < 0 ||
                                   copyrpc_type_add(module, &exit_spec, &exit_type) < 0 ||
                                   has_exit(hold_type) < 0 || has_exit(use_type) < 0)) {
        return -1;
    }
    return 0;
}

/* session.h: where a session's shared files are, and what they are called. A session is a directory
 * in /dev/shm. All processes that share it are on one fabric. `simnic run`, `simnic ctl` and the
 * shim use this: nothing here has a side effect, allocates memory or prints. */
#ifndef SIMNIC_SESSION_SESSION_H
#define SIMNIC_SESSION_SESSION_H

#include <stdbool.h>

#define SESSION_PARENT "/dev/shm"
#define SESSION_NAME_MAX 64    /* characters of a session's name */
#define SESSION_PATH_BYTES 160 /* holds the path of any file directly in a session's directory */

/* Names in a session's directory. */
#define SESSION_LOCK "lock"
#define SESSION_SYSFS "sysfs"
#define SESSION_FABRIC "fabric" /* it is made last: a directory that has it is complete */

/* Environment of a program in a session. */
#define SESSION_VARIABLE "SIMNIC_SESSION"           /* the directory */
#define SESSION_NAME_VARIABLE "SIMNIC_SESSION_NAME" /* the user's choice of a name */
#define SESSION_TRACE_VARIABLE "SIMNIC_TRACE"

/* Returns whether a session may have this name: 1 to SESSION_NAME_MAX of A-Z a-z 0-9 _ . - */
bool session_name_is_valid(const char *name);

/* Writes the directory of this user's session of a valid name. */
void session_directory_of(const char *name, char directory[SESSION_PATH_BYTES]);

/* Returns the session's name at the end of `directory`, or NULL if that is no session directory of
 * this user. */
const char *session_name_in(const char *directory);

/* Returns whether the directory is a complete session of this user, which nobody else can write
 * to. */
bool session_is_complete(const char *directory);

/* Writes the path of a file in a session's directory. */
void session_file(const char *directory, const char *file, char path[SESSION_PATH_BYTES]);

/* Finds out which session is meant: `option` (of --session; may be NULL), else the one that this
 * process runs in, else the one that $SIMNIC_SESSION_NAME names, else "default". Returns NULL, or
 * the name of the option or variable that has an invalid value. */
const char *session_choose(const char *option, char directory[SESSION_PATH_BYTES]);

#endif

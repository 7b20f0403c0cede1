// The calls of a process that change files -> the same, but the n-th of a kind under one folder fails, as told by `arm`.
// Preloaded (LD_PRELOAD): what Python and Rust call passes here as well.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE, RENAME, SYNC, CREATE, MKDIR };
enum { SHORT = -1, FULL = -2 };  // half is written, once; half is written, and nothing more after it

static atomic_int armed, kind, left, how, fired;
static char folder[4096];

void arm(int which, int number, int trouble, const char *under) {
    snprintf(folder, sizeof folder, "%s", under);
    kind = which, left = number, how = trouble, fired = 0, armed = 1;
}

int disarm(void) {
    armed = 0;
    return fired;
}

static int due(int which, const char *path) {
    if (!armed || kind != which || strncmp(path, folder, strlen(folder)) != 0) return 0;
    int now = --left == 0 || (how == FULL && left < 0);
    if (now) ++fired;
    return now;
}

static int due_at(int which, int file) {
    if (!armed) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return due(which, path);
}

static int fail(void) {
    errno = how > 0 ? how : ENOSPC;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *bytes, size_t count) {
    if (due_at(WRITE, file)) {
        if (how > 0 || left < 0 || count < 2) return fail();
        count /= 2;
    }
    return REAL(write)(file, bytes, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    if (due_at(WRITE, file)) {
        if (how > 0 || left < 0 || count < 2) return fail();
        count /= 2;
    }
    return REAL(pwrite64)(file, bytes, count, at);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (!due_at(WRITE, file)) return REAL(writev)(file, parts, count);
    if (how > 0 || left < 0) return fail();
    return REAL(write)(file, parts[0].iov_base, (parts[0].iov_len + 1) / 2);
}

int fsync(int file) { return due_at(SYNC, file) ? fail() : REAL(fsync)(file); }
int fdatasync(int file) { return due_at(SYNC, file) ? fail() : REAL(fdatasync)(file); }
int rename(const char *from, const char *to) { return due(RENAME, to) ? fail() : REAL(rename)(from, to); }
int mkdir(const char *path, mode_t mode) { return due(MKDIR, path) ? fail() : REAL(mkdir)(path, mode); }

#define OPEN(name)                                                       \
    int name(const char *path, int flags, ...) {                         \
        va_list rest;                                                    \
        va_start(rest, flags);                                           \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                    \
        if (flags & O_CREAT && due(CREATE, path)) return fail();         \
        return REAL(name)(path, flags, mode);                            \
    }
OPEN(open)
OPEN(open64)

/* Preloaded into an agent: counts its system calls that write, and ends it by SIGKILL at the Nth.
 *
 * FLOCK_KILL_AT    N
 * FLOCK_KILL_HOW   before: the call isn't made; after: it is; half: a write() of a file is cut in the middle
 * FLOCK_KILL_NOTE  a file that is told which call it was; it lies outside of what flock writes
 *
 * Not counted: the log (descriptors 1 and 2) and wake-ups of one byte, which leave nothing behind. The variables of the
 * dynamic loader are removed, so that what the agent starts runs unharmed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long count;
static long at = -1;
static enum { BEFORE, AFTER, HALF } how;
static char note[256];

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("FLOCK_KILL_AT"), *manner = getenv("FLOCK_KILL_HOW"), *path = getenv("FLOCK_KILL_NOTE");
    if (number) at = atol(number);
    if (manner) how = !strcmp(manner, "after") ? AFTER : !strcmp(manner, "half") ? HALF : BEFORE;
    if (path) snprintf(note, sizeof note, "%s", path);
    unsetenv("LD_PRELOAD");
}

static void die(const char *name)
{
    if (note[0]) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, note, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        syscall(SYS_write, fd, name, strlen(name));
    }
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
}

/* True if the process is to end with this call. */
static int last(void)
{
    return at >= 0 && atomic_fetch_add(&count, 1) + 1 == at;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, #name)

#define AROUND(name, counted, call)              \
    REAL(name);                                  \
    if (!(counted) || !last()) return call;      \
    if (how == AFTER) (void)!call;               \
    die(#name);                                  \
    return -1

#define OPEN(name)                                                     \
    int name(const char *path, int flags, ...)                         \
    {                                                                  \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        mode_t mode = va_arg(rest, mode_t);                            \
        va_end(rest);                                                  \
        AROUND(name, flags & (O_CREAT | O_TRUNC), real(path, flags, mode)); \
    }
#define OPENAT(name)                                                   \
    int name(int dir, const char *path, int flags, ...)                \
    {                                                                  \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        mode_t mode = va_arg(rest, mode_t);                            \
        va_end(rest);                                                  \
        AROUND(name, flags & (O_CREAT | O_TRUNC), real(dir, path, flags, mode)); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t length)
{
    REAL(write);
    if (fd == 1 || fd == 2 || length <= 1 || !last()) return real(fd, data, length);
    if (how != BEFORE) (void)!real(fd, data, how == HALF ? length / 2 : length);
    die(how == HALF ? "write, cut" : "write");
    return -1;
}

ssize_t writev(int fd, const struct iovec *parts, int n) { AROUND(writev, fd > 2, real(fd, parts, n)); }
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at_byte) { AROUND(pwrite64, 1, real(fd, data, length, at_byte)); }
ssize_t send(int fd, const void *data, size_t length, int flags) { AROUND(send, length > 1, real(fd, data, length, flags)); }
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) { AROUND(sendmsg, 1, real(fd, message, flags)); }
ssize_t sendto(int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size)
{
    AROUND(sendto, length > 1, real(fd, data, length, flags, to, size));
}
int bind(int fd, const struct sockaddr *address, socklen_t size) { AROUND(bind, 1, real(fd, address, size)); }
int rename(const char *from, const char *to) { AROUND(rename, 1, real(from, to)); }
int renameat(int a, const char *from, int b, const char *to) { AROUND(renameat, 1, real(a, from, b, to)); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) { AROUND(renameat2, 1, real(a, from, b, to, flags)); }
int unlink(const char *path) { AROUND(unlink, 1, real(path)); }
int unlinkat(int dir, const char *path, int flags) { AROUND(unlinkat, 1, real(dir, path, flags)); }
int link(const char *from, const char *to) { AROUND(link, 1, real(from, to)); }
int symlink(const char *from, const char *to) { AROUND(symlink, 1, real(from, to)); }
int mkdir(const char *path, mode_t mode) { AROUND(mkdir, 1, real(path, mode)); }
int mkdirat(int dir, const char *path, mode_t mode) { AROUND(mkdirat, 1, real(dir, path, mode)); }
int rmdir(const char *path) { AROUND(rmdir, 1, real(path)); }
int ftruncate64(int fd, off64_t length) { AROUND(ftruncate64, 1, real(fd, length)); }
int fchmod(int fd, mode_t mode) { AROUND(fchmod, 1, real(fd, mode)); }
int chmod(const char *path, mode_t mode) { AROUND(chmod, 1, real(path, mode)); }
int utimensat(int dir, const char *path, const struct timespec times[2], int flags) { AROUND(utimensat, 1, real(dir, path, times, flags)); }
int futimens(int fd, const struct timespec times[2]) { AROUND(futimens, 1, real(fd, times)); }

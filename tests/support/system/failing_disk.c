/* A disk that fails, for one process: preloaded (LD_PRELOAD), it does what the file named by
   FAILING_DISK says at each call.

       ""          nothing fails
       "slow 100"  each sync takes so many milliseconds more
       "eio"       each sync fails
       "full"      each write that makes a file longer fails; the log's files have their length

   A sync is fsync, fdatasync and a write with RWF_DSYNC. What is not a regular file (sockets,
   standard output that is a pipe) is never touched. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int is_fault(int fd, int is_sync) {
    struct stat about;
    char word[32] = "";
    const char *name = getenv("FAILING_DISK");
    int saved = errno, file;
    if (name == NULL || fd <= 2 || fstat(fd, &about) != 0) goto whole;
    if (!S_ISREG(about.st_mode) && !(is_sync && S_ISDIR(about.st_mode))) goto whole;
    file = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    if (file < 0) goto whole;
    if (syscall(SYS_read, file, word, sizeof word - 1) < 0) word[0] = 0;
    syscall(SYS_close, file);
    if (is_sync && strncmp(word, "slow ", 5) == 0) {
        long ms = atol(word + 5);
        struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
    } else if (is_sync && strncmp(word, "eio", 3) == 0) {
        errno = EIO;
        return 1;
    } else if (!is_sync && strncmp(word, "full", 4) == 0) {
        errno = ENOSPC;
        return 1;
    }
whole:
    errno = saved;
    return 0;
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

int fsync(int fd) { return is_fault(fd, 1) ? -1 : REAL(int, "fsync", int)(fd); }

int fdatasync(int fd) { return is_fault(fd, 1) ? -1 : REAL(int, "fdatasync", int)(fd); }

ssize_t write(int fd, const void *bytes, size_t count) {
    return is_fault(fd, 0) ? -1 : REAL(ssize_t, "write", int, const void *, size_t)(fd, bytes, count);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    if (flags && is_fault(fd, 1)) return -1;
    return REAL(ssize_t, "pwritev2", int, const struct iovec *, int, off_t, int)
        (fd, parts, count, at, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    return pwritev2(fd, parts, count, at, flags);
}

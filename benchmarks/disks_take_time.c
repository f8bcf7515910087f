/* Makes the disks of a lab's OSDs take time: each I/O occupies its disk for a while, one after the other.
 *
 * The kernel's throttle, by which a lab limits its disks, delays nothing below its limit (docs/evidence.md, "What a
 * throttled disk counts"). This library is loaded into ceph-osd, and holds completed I/Os back until a disk that serves
 * one I/O at a time would have done them. A disk is a loop device; whether it is a hard disk, its queue says.
 *
 *     cc -O2 -shared -fPIC -o disks_take_time.so benchmarks/disks_take_time.c   (Debian: gcc, libaio-dev)
 *     LD_PRELOAD=$PWD/disks_take_time.so HDD_MICROSECONDS=2000 SSD_MICROSECONDS=300 cephfit lab up
 *
 * The bytes of an I/O add to its time: 150 MiB/s on hard disks, 400 on SSDs. Limits that a lab lifts to fill volumes
 * stay here, so filling takes longer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <libaio.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>

enum { SSD, HDD, KINDS };
enum { LOOP_MAJOR = 7, DISKS = 256, SLOTS = 1 << 16, CONTEXTS = 32, HELD = 4096, AT_ONCE = 64 };
static const int64_t SECOND = 1000000000, NBYTES_PER_S[KINDS] = {400LL << 20, 150LL << 20};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_osd;
static int64_t service_ns[KINDS];
static int64_t free_at[DISKS];  /* when the disk has done all that it was given */
static int kind_of[DISKS];      /* kind + 1; 0: not looked up yet */

__attribute__((constructor)) static void read_settings(void)
{
    const char *hdd = getenv("HDD_MICROSECONDS"), *ssd = getenv("SSD_MICROSECONDS");

    service_ns[HDD] = (hdd ? atoll(hdd) : 0) * 1000;
    service_ns[SSD] = (ssd ? atoll(ssd) : 0) * 1000;
    is_osd = strcmp(program_invocation_short_name, "ceph-osd") == 0;
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static void sleep_until(int64_t due)
{
    struct timespec until = {due / SECOND, due % SECOND};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* The number of the disk behind a file descriptor, or -1. */
static int disk_of(int fd)
{
    struct stat status;
    char path[64];

    if (!is_osd || fstat(fd, &status) || !S_ISBLK(status.st_mode) || major(status.st_rdev) != LOOP_MAJOR)
        return -1;
    int disk = minor(status.st_rdev);
    if (disk >= DISKS)
        return -1;
    if (!kind_of[disk]) {
        snprintf(path, sizeof path, "/sys/block/loop%d/queue/rotational", disk);
        FILE *file = fopen(path, "r");
        kind_of[disk] = 1 + (file && fgetc(file) == '0' ? SSD : HDD);
        if (file)
            fclose(file);
    }
    return disk;
}

/* Give an I/O to a disk; return when it will be done. */
static int64_t due_on(int disk, int64_t nbytes)
{
    int kind = kind_of[disk] - 1;
    int64_t now = now_ns();

    pthread_mutex_lock(&lock);
    int64_t start = free_at[disk] > now ? free_at[disk] : now;
    int64_t due = free_at[disk] = start + service_ns[kind] + nbytes * SECOND / NBYTES_PER_S[kind];
    pthread_mutex_unlock(&lock);
    return due;
}

static int64_t nbytes_of(const struct iovec *parts, unsigned long n)
{
    int64_t sum = 0;

    for (unsigned long i = 0; i < n; i++)
        sum += parts[i].iov_len;
    return sum;
}

/* When each submitted I/O is due: open addressing; a removed one leaves GONE. */
static const char GONE;
static struct { const void *io; int64_t due; } submitted[SLOTS];

static size_t slot_of(const void *io, bool is_new)
{
    size_t slot = ((uintptr_t)io >> 4) * 2654435761u % SLOTS;

    for (int i = 0; i < SLOTS; i++, slot = (slot + 1) % SLOTS)
        if (submitted[slot].io == io || !submitted[slot].io || (is_new && submitted[slot].io == &GONE))
            break;
    return slot;
}

static void remember(const void *io, int64_t due)
{
    pthread_mutex_lock(&lock);
    size_t slot = slot_of(io, true);
    submitted[slot].io = io;
    submitted[slot].due = due;
    pthread_mutex_unlock(&lock);
}

static int64_t take_due(const void *io)
{
    int64_t due = 0;

    pthread_mutex_lock(&lock);
    size_t slot = slot_of(io, false);
    if (submitted[slot].io == io) {
        due = submitted[slot].due;
        submitted[slot].io = &GONE;
    }
    pthread_mutex_unlock(&lock);
    return due;
}

int io_submit(io_context_t context, long n, struct iocb *ios[])
{
    static int (*real)(io_context_t, long, struct iocb *[]);

    if (!real)
        real = (int (*)(io_context_t, long, struct iocb *[]))dlsym(RTLD_NEXT, "io_submit");
    for (long i = 0; is_osd && i < n; i++) {
        int disk = disk_of(ios[i]->aio_fildes);
        bool is_vector = ios[i]->aio_lio_opcode == IO_CMD_PWRITEV || ios[i]->aio_lio_opcode == IO_CMD_PREADV;
        unsigned long size = ios[i]->u.c.nbytes;
        if (disk >= 0)
            remember(ios[i], due_on(disk, is_vector ? nbytes_of(ios[i]->u.c.buf, size) : (int64_t)size));
    }
    return real(context, n, ios);
}

/* The completed I/Os of a context that are not due yet. Each context has one thread that asks for its events. */
struct held {
    io_context_t context;
    int n;
    struct { struct io_event event; int64_t due; } of[HELD];
};

static struct held *held_of(io_context_t context)
{
    static struct held *all[CONTEXTS];
    static int n;
    struct held *found = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++)
        if (all[i]->context == context)
            found = all[i];
    if (!found && n < CONTEXTS && (found = calloc(1, sizeof *found))) {
        found->context = context;
        all[n++] = found;
    }
    pthread_mutex_unlock(&lock);
    if (!found)
        abort();
    return found;
}

int io_getevents(io_context_t context, long least, long most, struct io_event *events, struct timespec *timeout)
{
    static int (*real)(io_context_t, long, long, struct io_event *, struct timespec *);
    struct io_event completed[AT_ONCE];

    if (!real)
        real = (int (*)(io_context_t, long, long, struct io_event *, struct timespec *))dlsym(
            RTLD_NEXT, "io_getevents");
    if (!is_osd)
        return real(context, least, most, events, timeout);
    struct held *held = held_of(context);
    int64_t end = timeout ? now_ns() + timeout->tv_sec * SECOND + timeout->tv_nsec : INT64_MAX;
    for (;;) {
        int64_t now = now_ns(), first = INT64_MAX;
        int64_t left = held->n || now >= end ? 0 : end - now;
        struct timespec wait = {left / SECOND, left % SECOND};
        int n = 0;
        if (held->n + AT_ONCE <= HELD)
            n = real(context, left ? 1 : 0, AT_ONCE, completed, timeout || !left ? &wait : NULL);
        if (n < 0)
            return n;
        for (int i = 0; i < n; i++, held->n++) {
            held->of[held->n].event = completed[i];
            held->of[held->n].due = take_due(completed[i].obj);
        }
        now = now_ns();
        int kept = 0;
        long n_out = 0;
        for (int i = 0; i < held->n; i++)
            if (held->of[i].due <= now && n_out < most)
                events[n_out++] = held->of[i].event;
            else {
                first = held->of[i].due < first ? held->of[i].due : first;
                held->of[kept++] = held->of[i];
            }
        held->n = kept;
        if (n_out || now >= end)
            return n_out;
        if (kept && n < AT_ONCE)
            sleep_until(first < end ? first : end);
    }
}

#define TAKES_TIME(name, parameters, arguments, nbytes)                  \
    ssize_t name parameters                                              \
    {                                                                    \
        static ssize_t(*real) parameters;                                \
        if (!real)                                                       \
            real = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);       \
        int disk = disk_of(fd);                                          \
        int64_t due = disk < 0 ? 0 : due_on(disk, nbytes);               \
        ssize_t result = real arguments;                                 \
        int error = errno;                                               \
        if (disk >= 0)                                                   \
            sleep_until(due);                                            \
        errno = error;                                                   \
        return result;                                                   \
    }

TAKES_TIME(pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), size)
TAKES_TIME(pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at), size)
TAKES_TIME(preadv64, (int fd, const struct iovec *to, int n, off64_t at), (fd, to, n, at), nbytes_of(to, n))
TAKES_TIME(pwritev, (int fd, const struct iovec *of, int n, off_t at), (fd, of, n, at), nbytes_of(of, n))
TAKES_TIME(pwritev64, (int fd, const struct iovec *of, int n, off64_t at), (fd, of, n, at), nbytes_of(of, n))

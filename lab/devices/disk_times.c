/* Makes the disks of a lab take time: each I/O occupies its disk for a while, one after the other.
 *
 * The kernel's throttle delays nothing below its limit, and then for up to 100 ms (docs/evidence.md, "Disks that take
 * time"). This library is loaded into servers that read and write loop devices themselves (ceph-osd, tgtd), and
 * holds an I/O back until a disk that serves one at a time would have done it. As in an elevator, an I/O that continues
 * the last one of a queue is merged with it. Writes through the page cache occupy the disk when they are written, and
 * are waited for when they are synchronized; reads that the page cache has take no time.
 *
 * $CEPHFIT_DISK_TIMES names the table that disk_times.py writes: for each minor number of a loop device the nanoseconds
 * of an I/O and the bytes per second, which add up; 0 and 0: the device has its own speed. Changes apply at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { LOOP_MAJOR = 7, DISKS = 4096, CONTEXTS = 64, HELD = 4096, AT_ONCE = 64 };
static const int64_t SECOND = 1000000000;

struct speed {
    int64_t io_ns, nbytes_per_s;
};
static const volatile struct speed *table; /* of DISKS; NULL: no disk takes time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct disk {
    int64_t free_at;     /* when it has done all that it was given */
    int64_t written_at;  /* when it has done what went through the page cache */
    int64_t end;         /* of the last I/O */
    bool was_write;
} disks[DISKS];

__attribute__((constructor)) static void read_table(void)
{
    const char *path = getenv("CEPHFIT_DISK_TIMES");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    void *mapped = mmap(NULL, DISKS * sizeof *table, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED)
        table = mapped;
    close(fd);
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

/* The number of the disk that takes time behind a file descriptor, or -1. */
static int disk_of(int fd)
{
    struct stat status;

    if (!table || fstat(fd, &status) || !S_ISBLK(status.st_mode) || major(status.st_rdev) != LOOP_MAJOR ||
        minor(status.st_rdev) >= DISKS)
        return -1;
    int disk = minor(status.st_rdev);
    return table[disk].nbytes_per_s ? disk : -1;
}

struct io {
    int64_t start, nbytes;
    bool is_write;
};

/* Give an I/O to a disk; return how long it takes there, and when it will be done. */
static int64_t occupy(int number, struct io io, int64_t *due)
{
    struct speed speed = {table[number].io_ns, table[number].nbytes_per_s};
    struct disk *disk = &disks[number];
    int64_t now = now_ns(), takes = speed.nbytes_per_s ? io.nbytes * SECOND / speed.nbytes_per_s : 0;

    pthread_mutex_lock(&lock);
    bool is_merged = disk->free_at > now && disk->end == io.start && disk->was_write == io.is_write;
    takes += is_merged ? 0 : speed.io_ns;
    *due = disk->free_at = (disk->free_at > now ? disk->free_at : now) + takes;
    disk->end = io.start + io.nbytes;
    disk->was_write = io.is_write;
    pthread_mutex_unlock(&lock);
    return takes;
}

static int64_t nbytes_of(const struct iovec *parts, unsigned long n)
{
    int64_t sum = 0;

    for (unsigned long i = 0; i < n; i++)
        sum += parts[i].iov_len;
    return sum;
}

/* Asynchronous I/Os. What is known of an I/O goes with it in place of its caller's data until it is completed. */
struct timed {
    uint64_t data; /* of the caller */
    int disk;      /* -1: takes no time */
    struct io io;
    int64_t takes, due;
};

static struct timed *take_along(struct iocb *io)
{
    int kind = io->aio_lio_opcode;
    bool is_vector = kind == IOCB_CMD_PWRITEV || kind == IOCB_CMD_PREADV;
    int64_t nbytes = is_vector ? nbytes_of((struct iovec *)io->aio_buf, io->aio_nbytes) : (int64_t)io->aio_nbytes;
    struct timed *timed = malloc(sizeof *timed);

    if (!timed)
        abort();
    *timed = (struct timed){
        .data = io->aio_data,
        .disk = disk_of(io->aio_fildes),
        .io = {io->aio_offset, nbytes, kind == IOCB_CMD_PWRITEV || kind == IOCB_CMD_PWRITE},
    };
    io->aio_data = (uintptr_t)timed;
    return timed;
}

static int by_place(const void *one, const void *other)
{
    const struct timed *a = *(struct timed *const *)one, *b = *(struct timed *const *)other;

    if (a->disk != b->disk)
        return a->disk - b->disk;
    if (a->io.is_write != b->io.is_write)
        return a->io.is_write - b->io.is_write;
    return (a->io.start > b->io.start) - (a->io.start < b->io.start);
}

/* The kernel did not take the I/O: the caller will submit it again. */
static void give_back(struct iocb *io)
{
    struct timed *timed = (struct timed *)io->aio_data;

    if (timed->disk >= 0) {
        pthread_mutex_lock(&lock);
        disks[timed->disk].free_at -= timed->takes;
        pthread_mutex_unlock(&lock);
    }
    io->aio_data = timed->data;
    free(timed);
}

/* Restore the caller's data of a completed I/O; return when its disk has done it. */
static int64_t due_of(struct io_event *event)
{
    struct timed *timed = (struct timed *)event->data;
    int64_t due = timed->due;

    event->data = ((struct iocb *)event->obj)->aio_data = timed->data;
    free(timed);
    return due;
}

int io_submit(aio_context_t context, long n, struct iocb *ios[])
{
    static int (*real)(aio_context_t, long, struct iocb *[]);

    if (!real)
        real = (int (*)(aio_context_t, long, struct iocb *[]))dlsym(RTLD_NEXT, "io_submit");
    if (!table || n <= 0)
        return real(context, n, ios);
    struct timed *all[n];
    for (long i = 0; i < n; i++)
        all[i] = take_along(ios[i]);
    /* What is submitted together is sorted, so that it can be merged. */
    qsort(all, n, sizeof *all, by_place);
    for (long i = 0; i < n; i++)
        if (all[i]->disk >= 0)
            all[i]->takes = occupy(all[i]->disk, all[i]->io, &all[i]->due);
    int submitted = real(context, n, ios);
    for (long i = submitted > 0 ? submitted : 0; i < n; i++)
        give_back(ios[i]);
    return submitted;
}

/* The completed I/Os of a context that are not due yet. Each context has one thread that asks for its events. */
struct held {
    aio_context_t context; /* 0: free */
    int n;
    struct {
        struct io_event event;
        int64_t due;
    } of[HELD];
};
static struct held *contexts[CONTEXTS];

static struct held *held_of(aio_context_t context)
{
    struct held *found = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < CONTEXTS && contexts[i] && !found; i++)
        if (contexts[i]->context == context)
            found = contexts[i];
    for (int i = 0; i < CONTEXTS && !found; i++) {
        if (!contexts[i] && !(contexts[i] = calloc(1, sizeof *found)))
            abort();
        if (!contexts[i]->context)
            found = contexts[i];
    }
    if (!found)
        abort();
    found->context = context;
    pthread_mutex_unlock(&lock);
    return found;
}

int io_destroy(aio_context_t context)
{
    static int (*real)(aio_context_t);

    if (!real)
        real = (int (*)(aio_context_t))dlsym(RTLD_NEXT, "io_destroy");
    if (table) {
        struct held *held = held_of(context);
        pthread_mutex_lock(&lock);
        held->n = 0;
        held->context = 0;
        pthread_mutex_unlock(&lock);
    }
    return real(context);
}

/* Returns as soon as one I/O is due, as all callers ask for at least one. */
int io_getevents(aio_context_t context, long least, long most, struct io_event *events, struct timespec *timeout)
{
    static int (*real)(aio_context_t, long, long, struct io_event *, struct timespec *);
    struct io_event completed[AT_ONCE];

    if (!real)
        real = (int (*)(aio_context_t, long, long, struct io_event *, struct timespec *))dlsym(
            RTLD_NEXT, "io_getevents");
    if (!table)
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
            held->of[held->n].due = due_of(&completed[i]);
            held->of[held->n].event = completed[i];
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

/* Ceph then uses the calls above: io_uring could not be held back. */
int io_uring_queue_init(unsigned n, void *ring, unsigned flags)
{
    (void)n, (void)ring, (void)flags;
    return -ENOSYS;
}

static bool is_cached(int fd, const struct iovec *to, int n, off64_t at)
{
    return preadv2(fd, to, n, at, RWF_NOWAIT) == nbytes_of(to, n);
}

/* Give an I/O to the disk of a file; return until when its caller waits, 0: not at all. */
static int64_t use(int fd, bool is_write, const struct iovec *parts, int n, off64_t at)
{
    int disk = disk_of(fd);
    int64_t due;

    if (disk < 0)
        return 0;
    bool is_through_cache = !(fcntl(fd, F_GETFL) & O_DIRECT);
    if (is_through_cache && !is_write && is_cached(fd, parts, n, at))
        return 0;
    occupy(disk, (struct io){at, nbytes_of(parts, n), is_write}, &due);
    if (is_through_cache && is_write) {
        disks[disk].written_at = due;
        return 0;
    }
    return due;
}

/* Return until when a flush of a file waits for what was written through the page cache. */
static int64_t flushed_at(int fd)
{
    int disk = disk_of(fd);

    return disk < 0 ? 0 : disks[disk].written_at;
}

#define TAKES_TIME(type, name, parameters, arguments, until)    \
    type name parameters                                        \
    {                                                           \
        static type(*real) parameters;                          \
        if (!real)                                              \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        int64_t due = until;                                    \
        type result = real arguments;                           \
        int error = errno;                                      \
        if (due)                                                \
            sleep_until(due);                                   \
        errno = error;                                          \
        return result;                                          \
    }
#define ONE(buffer, size) (&(struct iovec){(void *)(buffer), size}), 1

TAKES_TIME(ssize_t, pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at),
           use(fd, false, ONE(to, size), at))
TAKES_TIME(ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at),
           use(fd, false, ONE(to, size), at))
TAKES_TIME(ssize_t, preadv64, (int fd, const struct iovec *to, int n, off64_t at), (fd, to, n, at),
           use(fd, false, to, n, at))
TAKES_TIME(ssize_t, pwrite, (int fd, const void *of, size_t size, off_t at), (fd, of, size, at),
           use(fd, true, ONE(of, size), at))
TAKES_TIME(ssize_t, pwrite64, (int fd, const void *of, size_t size, off64_t at), (fd, of, size, at),
           use(fd, true, ONE(of, size), at))
TAKES_TIME(ssize_t, pwritev64, (int fd, const struct iovec *of, int n, off64_t at), (fd, of, n, at),
           use(fd, true, of, n, at))
TAKES_TIME(int, fdatasync, (int fd), (fd), flushed_at(fd))
TAKES_TIME(int, fsync, (int fd), (fd), flushed_at(fd))

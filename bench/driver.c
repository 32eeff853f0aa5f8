/* Times CNI plugins as a runtime calls them: environment, stdin, stdout, exit code. Exec to exit.
 *
 * Stdin:  u32 count, u32 gate (0 or 1), then for each call u32 path length, u32 env length, u32 stdin length, path with
 *         its NUL, env as NUL-terminated KEY=VALUE, stdin.
 * Stdout: u32 quiet (was the gate passed), u32 0, u64 wall ns from the first start to the last end, then for each call
 *         u64 elapsed ns, u64 CPU ns of the process and its children, u32 wait status, u32 stdout length, stdout.
 *
 * Several calls start at a barrier, a thread each. One call runs in the main thread: no thread is woken for it.
 * The gate waits until nobody else is runnable and a request that takes RTNL returns at once, several times in a row:
 * the ends of network namespaces hold that lock for tens of milliseconds after their owner is gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { QUIET_TIMES = 3, QUIET_LIMIT_MS = 3000, RTNL_FREE_NS = 60000, OUTPUT_LIMIT = 1 << 16 };

struct call {
    char *path, *stdin_data, **env;
    uint32_t stdin_length, out_length;
    int status;
    uint64_t started, ended, cpu;
    char out[OUTPUT_LIMIT];
};

static pthread_barrier_t barrier;

static void die(const char *what)
{
    fprintf(stderr, "driver: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void take(void *into, size_t length)
{
    if (length && fread(into, 1, length, stdin) != length) {
        if (feof(stdin)) exit(0);
        die("read");
    }
}

static uint32_t take_u32(void)
{
    uint32_t value;
    take(&value, sizeof value);
    return value;
}

static void *must(void *memory)
{
    if (!memory) die("memory");
    return memory;
}

static void read_call(struct call *call)
{
    uint32_t path_length = take_u32(), env_length = take_u32(), count = 0;
    call->stdin_length = take_u32();
    call->path = must(malloc(path_length + 1));
    char *block = must(malloc(env_length + 1));
    call->stdin_data = must(malloc(call->stdin_length + 1));
    take(call->path, path_length);
    take(block, env_length);
    take(call->stdin_data, call->stdin_length);
    for (uint32_t i = 0; i < env_length; i++) count += block[i] == 0;
    call->env = must(calloc(count + 1, sizeof *call->env));
    char *at = block;
    for (uint32_t i = 0; i < count; i++, at += strlen(at) + 1) call->env[i] = at;
}

static void free_call(struct call *call)
{
    if (call->env[0]) free(call->env[0]);
    free(call->env);
    free(call->path);
    free(call->stdin_data);
}

static void run_call(struct call *call)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) die("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    char *argv[] = {call->path, NULL};
    pid_t pid;
    struct rusage usage;

    call->started = now();
    if ((errno = posix_spawn(&pid, call->path, &actions, NULL, argv, call->env))) die(call->path);
    close(in[0]);
    close(out[1]);
    if (call->stdin_length && write(in[1], call->stdin_data, call->stdin_length) < 0 && errno != EPIPE) die("write");
    close(in[1]);
    ssize_t n;
    call->out_length = 0;
    while ((n = read(out[0], call->out + call->out_length, OUTPUT_LIMIT - call->out_length)) > 0)
        call->out_length += (uint32_t)n;
    if (wait4(pid, &call->status, 0, &usage) != pid) die("wait4");
    call->ended = now();

    close(out[0]);
    posix_spawn_file_actions_destroy(&actions);
    call->cpu = 1000 * ((uint64_t)usage.ru_utime.tv_sec * 1000000 + (uint64_t)usage.ru_utime.tv_usec +
                        (uint64_t)usage.ru_stime.tv_sec * 1000000 + (uint64_t)usage.ru_stime.tv_usec);
}

static void *run_at_barrier(void *argument)
{
    pthread_barrier_wait(&barrier);
    run_call(argument);
    return NULL;
}

static void run_all(struct call *calls, uint32_t count)
{
    if (count == 1) {
        run_call(calls);
        return;
    }
    pthread_t threads[count];
    pthread_barrier_init(&barrier, NULL, count);
    for (uint32_t i = 0; i < count; i++)
        if ((errno = pthread_create(&threads[i], NULL, run_at_barrier, &calls[i]))) die("thread");
    for (uint32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static int alone(void)
{
    char text[128] = "";
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC), running = 99;
    if (fd < 0 || read(fd, text, sizeof text - 1) < 0) die("/proc/loadavg");
    close(fd);
    sscanf(text, "%*f %*f %*f %d/", &running);
    return running <= 1;
}

/* RTM_SETLINK of an interface that doesn't exist takes the lock, looks, and answers ENODEV. */
static int rtnl_free(void)
{
    static int fd = -1;
    struct {
        struct nlmsghdr header;
        struct ifinfomsg link;
    } request = {
        {.nlmsg_len = sizeof request, .nlmsg_type = RTM_SETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        {.ifi_index = 0x7ffffff0},
    };
    char reply[512];
    if (fd < 0 && (fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) < 0) die("netlink");
    uint64_t start = now();
    if (send(fd, &request, sizeof request, 0) < 0 || recv(fd, reply, sizeof reply, 0) < 0) die("netlink");
    return now() - start < RTNL_FREE_NS;
}

static uint32_t wait_quiet(void)
{
    uint64_t end = now() + QUIET_LIMIT_MS * 1000000ull;
    for (int quiet = 0; now() < end;) {
        quiet = alone() && rtnl_free() ? quiet + 1 : 0;
        if (quiet == QUIET_TIMES) return 1;
        usleep(300);
    }
    return 0;
}

static void give(const void *data, size_t length)
{
    if (length && fwrite(data, 1, length, stdout) != length) die("write");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        uint32_t count = take_u32(), gate = take_u32();
        struct call *calls = must(calloc(count, sizeof *calls));
        uint64_t first = UINT64_MAX, last = 0;
        for (uint32_t i = 0; i < count; i++) read_call(&calls[i]);
        uint32_t quiet[2] = {gate ? wait_quiet() : 0, 0};
        run_all(calls, count);
        for (uint32_t i = 0; i < count; i++) {
            if (calls[i].started < first) first = calls[i].started;
            if (calls[i].ended > last) last = calls[i].ended;
        }
        uint64_t wall = last - first;
        give(quiet, sizeof quiet);
        give(&wall, sizeof wall);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t elapsed = calls[i].ended - calls[i].started;
            uint32_t tail[2] = {(uint32_t)calls[i].status, calls[i].out_length};
            give(&elapsed, sizeof elapsed);
            give(&calls[i].cpu, sizeof calls[i].cpu);
            give(tail, sizeof tail);
            give(calls[i].out, calls[i].out_length);
            free_call(&calls[i]);
        }
        fflush(stdout);
        free(calls);
    }
}

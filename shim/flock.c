/*
 * flock, the CNI plugin that runtimes exec: carries one request to flock-agent and prints the answer.
 *
 * It parses no JSON. Environment and stdin go over a unix socket in one frame (src/flock/cni/frames.py has the other end),
 * the pod's network namespace as a descriptor; the reply's bytes go to stdout, its number is the exit status.
 * VERSION it answers alone. Where the agent doesn't answer: DEL is written to a folder that the agent empties and
 * succeeds, STATUS says what the age of the agent's life sign says, everything else is "try again later".
 *
 * Every path ends: one timer is set at the start and fires again and again once it is due, so that whatever blocks comes
 * back with EINTR, also if the signal arrives just before the call.
 *
 * Invariants: nothing of the environment becomes part of a path or of JSON before it was checked; every buffer has a
 * fixed size, and what doesn't fit is refused by name; stdout gets a whole answer or a whole error, never a part.
 *
 * If the process is killed on any line: the agent sees the end of file and takes an ADD back; a half-written file in
 * the queue has a name that starts with a dot and is no entry.
 *
 * Source: CNI specification 1.1.0, sections 2 and 5.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Tests build with folders and deadlines of their own; a shipped shim has these. */
#ifndef RUN_DIR
#define RUN_DIR "/run/flock"
#endif
#ifndef ADD_MS
#define ADD_MS 60000
#endif
#ifndef DEL_MS
#define DEL_MS 10000
#endif
#ifndef STATUS_MS
#define STATUS_MS 5000
#endif
#ifndef QUEUE_MS
#define QUEUE_MS 5000
#endif

#define AGENT_SOCKET RUN_DIR "/agent.sock"
#define ALIVE_FILE RUN_DIR "/alive"
#define DELETES_DIR RUN_DIR "/deletes"

enum { ENV_LIMIT = 64 << 10, STDIN_LIMIT = 4 << 20, REPLY_LIMIT = 1 << 20, ID_LIMIT = 200, IFNAME_LIMIT = 15 };
enum { ALIVE_SECONDS = 60, TICK_MS = 20, HEAD = 12 };
enum { INVALID_ENV = 4, IO_FAILURE = 5, DECODE_FAILURE = 6, TRY_AGAIN = 11, NO_AGENT = 50 };

#define SUPPORTED "0.3.1, 0.4.0, 1.0.0, 1.1.0"

static const char about[] =
	"flock: the CNI plugin of flock-agent. Runtimes call it with CNI_COMMAND in the environment.\n"
	"CNI protocol versions supported: " SUPPORTED "\n";
static const char versions[] =
	"{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}";

struct verb {
	const char *name;
	int deadline_ms;
	unsigned char has_container, needs_netns;
};

static const struct verb verbs[] = {
	{"ADD", ADD_MS, 1, 1}, {"DEL", DEL_MS, 1, 0},          {"CHECK", ADD_MS, 1, 1},
	{"GC", ADD_MS, 0, 0},  {"STATUS", STATUS_MS, 0, 0},
};

/* Untouched pages of these cost nothing. The frame's head and environment, then stdin, then the reply. */
static char head[HEAD + ENV_LIMIT + 64];
static size_t head_length = HEAD;
static char input[STDIN_LIMIT + 1];
static size_t input_length;
static unsigned char reply[8 + REPLY_LIMIT];

static const char *command, *container, *ifname, *netns;
static volatile sig_atomic_t expired;

static void on_alarm(int number)
{
	(void)number;
	expired = 1;
}

static void set_deadline(long milliseconds)
{
	struct itimerval timer = {
		.it_value = {milliseconds / 1000, milliseconds % 1000 * 1000},
		.it_interval = {0, TICK_MS * 1000},
	};

	expired = 0;
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* SIGPIPE would turn a runtime that doesn't read into an unexplained death. Masks are inherited over exec. */
static void set_signals(void)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, alarm = {.sa_handler = on_alarm};
	sigset_t set;

	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGALRM, &alarm, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int interrupted(ssize_t result)
{
	return result < 0 && errno == EINTR && !expired;
}

static int write_all(int fd, const void *data, size_t length)
{
	const char *at = data;

	while (length > 0) {
		ssize_t written = write(fd, at, length);

		if (interrupted(written))
			continue;
		if (written <= 0)
			return -1;
		at += written;
		length -= (size_t)written;
	}
	return 0;
}

/* Text in a buffer of fixed size; what doesn't fit is left out, and `full` says so. */
struct text {
	char *data;
	size_t length, size;
	int full;
};

static void put(struct text *text, const char *more)
{
	size_t length = strlen(more);

	if (length >= text->size - text->length) {
		text->full = 1;
		return;
	}
	memcpy(text->data + text->length, more, length + 1);
	text->length += length;
}

static void put_number(struct text *text, uint64_t number)
{
	char digits[24];
	size_t at = sizeof(digits) - 1;

	digits[at] = '\0';
	do
		digits[--at] = (char)('0' + number % 10);
	while (number /= 10);
	put(text, digits + at);
}

/* The texts are constants of this file, without a character that JSON escapes. */
static _Noreturn void fail(int code, const char *msg, const char *details)
{
	char buffer[1024];
	struct text text = {.data = buffer, .size = sizeof(buffer)};

	put(&text, "{\"cniVersion\":\"1.0.0\",\"code\":");
	put_number(&text, (uint64_t)code);
	put(&text, ",\"msg\":\"");
	put(&text, msg);
	if (*details) {
		put(&text, "\",\"details\":\"");
		put(&text, details);
	}
	put(&text, "\"}");
	write_all(STDOUT_FILENO, buffer, text.length);
	_exit(code);
}

static int is_letter_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* The rules of flock.model.ids; the agent has them again, and says which one a value breaks. */
static int is_container_id(const char *id)
{
	size_t at = 0;

	if (!is_letter_or_digit(id[0]))
		return 0;
	for (; id[at]; at++)
		if (at == ID_LIMIT || (!is_letter_or_digit(id[at]) && id[at] != '_' && id[at] != '.' && id[at] != '-'))
			return 0;
	return 1;
}

static int is_ifname(const char *name)
{
	size_t at = 0;

	for (; name[at]; at++) {
		unsigned char c = (unsigned char)name[at];

		if (at == IFNAME_LIMIT || c == '/' || c == ':' || c == '%' || c <= ' ' || c == 0x7f)
			return 0;
	}
	return at > 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static const char *value_of(const char *entry, const char *key)
{
	size_t length = strlen(key);

	return strncmp(entry, key, length) == 0 && entry[length] == '=' ? entry + length + 1 : NULL;
}

/* Copies CNI_* into the frame and keeps the four that the shim itself looks at; of two, the first counts. */
static int read_environment(char **environment)
{
	static const struct {
		const char *key;
		const char **value;
	} wanted[] = {
		{"CNI_COMMAND", &command}, {"CNI_CONTAINERID", &container}, {"CNI_IFNAME", &ifname}, {"CNI_NETNS", &netns},
	};
	int fits = 1;

	for (; *environment; environment++) {
		const char *entry = *environment;
		size_t length;

		if (strncmp(entry, "CNI_", 4) != 0 || !strchr(entry, '='))
			continue;
		length = strlen(entry) + 1;
		if (length > HEAD + ENV_LIMIT - head_length) {
			fits = 0;
			continue;
		}
		memcpy(head + head_length, entry, length);
		head_length += length;
		for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
			const char *value = value_of(entry, wanted[i].key);

			if (value && !*wanted[i].value)
				*wanted[i].value = value;
		}
	}
	return fits;
}

/* Room for this is beyond ENV_LIMIT's. */
static void add_to_environment(const char *key, uint64_t number)
{
	struct text text = {.data = head, .length = head_length, .size = sizeof(head)};

	put(&text, key);
	put_number(&text, number);
	if (!text.full)
		head_length = text.length + 1;
}

static int is_set(const char *value)
{
	return value && *value;
}

static void check_environment(const struct verb *verb)
{
	char buffer[160];
	struct text text = {.data = buffer, .size = sizeof(buffer)};

	put(&text, "required env variables are missing:");
	if (!is_set(container))
		put(&text, " CNI_CONTAINERID");
	if (verb->needs_netns && !is_set(netns))
		put(&text, " CNI_NETNS");
	if (!is_set(ifname))
		put(&text, " CNI_IFNAME");
	if (text.data[text.length - 1] != ':')
		fail(INVALID_ENV, buffer, "");
	if (!is_container_id(container))
		fail(INVALID_ENV, "CNI_CONTAINERID is not a container ID",
		     "1 to 200 letters, digits, '_', '.' and '-', the first a letter or a digit");
	if (!is_ifname(ifname))
		fail(INVALID_ENV, "CNI_IFNAME is not an interface name",
		     "1 to 15 bytes without '/', ':', '%', white space and control characters, not '.' or '..'");
}

/* 1: read to its end; 0: nobody closed it in time. */
static int read_input(void)
{
	for (;;) {
		ssize_t count = read(STDIN_FILENO, input + input_length, sizeof(input) - input_length);

		if (interrupted(count))
			continue;
		/* A closed stdin is an empty one: the agent then says that it is no JSON. */
		if (count == 0 || (count < 0 && errno == EBADF))
			return 1;
		if (count < 0 && expired)
			return 0;
		if (count < 0)
			fail(IO_FAILURE, "the network configuration can't be read from stdin", "");
		input_length += (size_t)count;
		if (input_length > STDIN_LIMIT)
			fail(DECODE_FAILURE, "the network configuration on stdin is too large", "at most 4 MiB");
	}
}

/* O_NONBLOCK: a path that names a fifo must not hold the runtime up. */
static int open_netns(void)
{
	int fd;

	if (!is_set(netns))
		return -1;
	do
		fd = open(netns, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	while (interrupted(fd));
	if (fd < 0)
		add_to_environment("FLOCK_NETNS_ERROR=", (uint64_t)errno);
	return fd;
}

static void put_u32(char *at, size_t number)
{
	for (int i = 0; i < 4; i++)
		at[i] = (char)(number >> (8 * i) & 0xff);
}

static uint32_t get_u32(const unsigned char *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void finish_head(void)
{
	memcpy(head, "FLK1", 4);
	put_u32(head + 4, head_length - HEAD);
	put_u32(head + 8, input_length);
}

/* One sendmsg as a rule; the descriptor rides on the first byte, so only the first one carries it. */
static void send_request(int sock, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec parts[2] = {{head, head_length}, {input, input_length}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.space);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	}
	while (parts[0].iov_len + parts[1].iov_len > 0) {
		ssize_t sent = sendmsg(sock, &message, MSG_NOSIGNAL);

		if (interrupted(sent))
			continue;
		/* The agent may have refused what it saw so far and closed: its reply can still be read. */
		if (sent <= 0)
			return;
		message.msg_control = NULL;
		message.msg_controllen = 0;
		for (int i = 0; i < 2; i++) {
			size_t step = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;

			parts[i].iov_base = (char *)parts[i].iov_base + step;
			parts[i].iov_len -= step;
			sent -= (ssize_t)step;
		}
	}
}

/* The reply's length where it came whole, else -1. */
static ssize_t receive_reply(int sock)
{
	size_t length = 0, wanted = 8;

	while (length < wanted) {
		ssize_t count = recv(sock, reply + length, sizeof(reply) - length, 0);

		if (interrupted(count))
			continue;
		if (count <= 0)
			return -1;
		length += (size_t)count;
		if (length >= 8) {
			uint32_t body = get_u32(reply + 4);

			if (body > REPLY_LIMIT)
				return -1;
			wanted = 8 + (size_t)body;
		}
	}
	return (ssize_t)wanted;
}

/* Ends the process where the agent answers, else says why it doesn't. */
static const char *ask_agent(int fd)
{
	static const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = AGENT_SOCKET};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ssize_t length;
	uint32_t code;
	int failed;

	if (sock < 0)
		return "no socket can be made";
	do
		failed = connect(sock, (const struct sockaddr *)&address, sizeof(address));
	while (interrupted(failed));
	if (failed)
		return expired ? "the agent takes no connection" : "nothing listens on " AGENT_SOCKET;
	send_request(sock, fd);
	length = receive_reply(sock);
	/* Closed before anything is printed: with a closed stdout, its number could be this socket's. */
	close(sock);
	if (length < 0)
		return expired ? "the agent gave no answer in time" : "the agent closed the connection without an answer";
	code = get_u32(reply);
	failed = write_all(STDOUT_FILENO, reply + 8, (size_t)length - 8);
	_exit(code > 255 ? 255 : code == 0 && failed ? IO_FAILURE : (int)code);
}

static const char *reason_of(int number)
{
	switch (number) {
	case ENOSPC:
	case EDQUOT:
		return "no space is left in " DELETES_DIR;
	case EROFS:
		return DELETES_DIR " is on a read-only file system";
	case EACCES:
	case EPERM:
		return "no permission to write to " DELETES_DIR;
	default:
		return DELETES_DIR " can't be written";
	}
}

static int write_entry(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int failed, number;

	if (fd < 0)
		return -1;
	failed = write_all(fd, head, head_length) || write_all(fd, input, input_length);
	number = errno;
	if (close(fd) && !failed)
		return -1;
	errno = number;
	return failed ? -1 : 0;
}

/* Under its final name an entry is whole. A dot starts no container ID, so no unfinished one is taken for an entry. */
static _Noreturn void queue_delete(int fd, const char *reason)
{
	char temporary[sizeof(DELETES_DIR) + 64], path[sizeof(DELETES_DIR) + ID_LIMIT + IFNAME_LIMIT + 8];
	struct text from = {.data = temporary, .size = sizeof(temporary)}, to = {.data = path, .size = sizeof(path)};
	struct timespec now;
	struct stat netns_stat;
	int number;

	set_deadline(QUEUE_MS);
	if (fd >= 0 && fstat(fd, &netns_stat) == 0)
		add_to_environment("FLOCK_NETNS_INODE=", netns_stat.st_ino);
	finish_head();
	if ((mkdir(RUN_DIR, 0755) && errno != EEXIST) || (mkdir(DELETES_DIR, 0700) && errno != EEXIST))
		fail(IO_FAILURE, reason, reason_of(errno));
	clock_gettime(CLOCK_MONOTONIC, &now);
	put(&from, DELETES_DIR "/.");
	put_number(&from, (uint64_t)getpid());
	put(&from, ".");
	put_number(&from, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
	put(&to, DELETES_DIR "/");
	put(&to, container);
	put(&to, ":");
	put(&to, ifname);
	if (!from.full && !to.full && write_entry(temporary) == 0 && rename(temporary, path) == 0)
		_exit(0);
	number = errno;
	unlink(temporary);
	fail(IO_FAILURE, reason, reason_of(number));
}

/* Between two agents the last life sign counts: a failing STATUS makes the whole node NotReady. */
static _Noreturn void status_without_agent(const char *reason)
{
	struct stat alive;
	struct timespec now;

	/* The agent sets the time of the file to the seconds since the machine's start: the wall clock may jump. */
	clock_gettime(CLOCK_BOOTTIME, &now);
	if (stat(ALIVE_FILE, &alive) == 0 && now.tv_sec - alive.st_mtim.tv_sec < ALIVE_SECONDS &&
	    now.tv_sec - alive.st_mtim.tv_sec > -ALIVE_SECONDS)
		_exit(0);
	fail(NO_AGENT, "flock-agent is not running", reason);
}

int main(int argc, char **argv, char **environment)
{
	const struct verb *verb = verbs, *end = verbs + sizeof(verbs) / sizeof(*verbs);
	const char *reason;
	int fits, fd = -1;

	(void)argc;
	(void)argv;
	set_signals();
	fits = read_environment(environment);
	if (!is_set(command)) {
		write_all(STDERR_FILENO, about, sizeof(about) - 1);
		_exit(0);
	}
	if (strcmp(command, "VERSION") == 0)
		_exit(write_all(STDOUT_FILENO, versions, sizeof(versions) - 1) ? IO_FAILURE : 0);
	while (verb < end && strcmp(command, verb->name) != 0)
		verb++;
	if (verb == end)
		fail(INVALID_ENV, "CNI_COMMAND is none of ADD, DEL, CHECK, GC, STATUS, VERSION", "");
	if (!fits)
		fail(INVALID_ENV, "the CNI_ variables are too large", "at most 64 KiB in all");
	if (verb->has_container)
		check_environment(verb);

	set_deadline(verb->deadline_ms);
	if (read_input()) {
		if (verb->has_container)
			fd = open_netns();
		finish_head();
		reason = ask_agent(fd);
	} else if (strcmp(command, "DEL") == 0) {
		/* What is here of it may be half of it; a DEL needs none. */
		input_length = 0;
		reason = "nobody closed stdin in time";
	} else {
		fail(IO_FAILURE, "the network configuration can't be read from stdin", "nobody closed it in time");
	}
	if (strcmp(command, "DEL") == 0)
		queue_delete(fd, reason);
	if (strcmp(command, "STATUS") == 0)
		status_without_agent(reason);
	fail(TRY_AGAIN, "flock-agent can't be reached; try again later", reason);
}

/* The sandbox's own process: it holds the pod's namespaces until the runtime ends it. */
#include <signal.h>
#include <unistd.h>

static void end(int number) {
    (void)number;
    _exit(0);
}

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;) pause();
}

// SPDX-License-Identifier: MIT
/*
 * Finds changes by write faults. All pages are write-protected but those that the open transaction has changed. The first write
 * to a protected page faults. Then the page's old contents are kept, and the page becomes writable. There are two ways:
 *
 *	userfaultfd	a thread serves the faults
 *	mprotect	a handler of SIGSEGV serves them; signals that are not its own go to the handler that was there before
 *
 * Only the thread whose transaction is open may write. A write by another thread is a write to read-only memory: SIGSEGV, which
 * ends the process even if the thread blocks or ignores it.
 * Both ways find only the program's own writes. A system call that writes to a protected page fails with EFAULT, unless
 * rvm_set_range() has announced the range before.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

/* ------------------------------------------------------------------ userfaultfd */

static int uffd_protect(struct rvm *v, size_t first, size_t count, uint64_t mode)
{
	struct uffdio_writeprotect wp = {
		.range = { .start = (uintptr_t)v->mem + first * RVM_PAGE, .len = count * RVM_PAGE },
		.mode = mode,
	};

	while (ioctl(v->uffd, UFFDIO_WRITEPROTECT, &wp))
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	return 0;
}

/* @status is a thread's file in /proc. Does its mask with this name have the signal @sig? */
static bool has_signal(const char *status, const char *mask, int sig)
{
	const char *at = strstr(status, mask);

	return at && strtoull(at + strlen(mask), NULL, 16) >> (sig - 1) & 1;
}

/* Reads without stdio, since @thread may hold stdio's locks. */
static bool refuses_signal(pid_t thread, int sig)
{
	char path[64], status[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, status, sizeof(status) - 1);
	close(fd);
	status[n > 0 ? n : 0] = '\0';
	return has_signal(status, "\nSigBlk:", sig) || has_signal(status, "\nSigIgn:", sig);
}

/*
 * The thread has written to read-only memory, and gets SIGSEGV. A SIGSEGV of the kernel ends the process also if the thread blocks
 * or ignores the signal. Ours would not, and the write would fault for ever. So in this case the process is aborted.
 */
static void punish(struct rvm *v, pid_t thread, uint64_t addr)
{
	if (refuses_signal(thread, SIGSEGV)) {
		dprintf(STDERR_FILENO, "librvm: memory %p: thread %d writes to 0x%llx without rvm_begin(): call it first\n",
			(void *)v->mem, thread, (unsigned long long)addr);
		abort();
	}
	syscall(SYS_tgkill, getpid(), thread, SIGSEGV);
}

static void serve_one(struct rvm *v, const struct uffd_msg *msg)
{
	uint64_t addr = msg->arg.pagefault.address;
	pid_t thread = msg->arg.pagefault.feat.ptid;
	size_t page = (addr - (uintptr_t)v->mem) / RVM_PAGE;

	if (msg->event != UFFD_EVENT_PAGEFAULT)
		return;
	if (atomic_load(&v->owner) != thread) {
		punish(v, thread, addr);
		return;
	}
	page_take(v, page);
	fault_allow(v, page, 1);
}

static void *serve(void *arg)
{
	struct rvm *v = arg;
	struct pollfd fds[] = { { .fd = v->uffd, .events = POLLIN }, { .fd = v->stop, .events = POLLIN } };
	struct uffd_msg msg;

	while (!fds[1].revents) {
		if (poll(fds, 2, -1) < 0 || !(fds[0].revents & POLLIN))
			continue;
		while (read(v->uffd, &msg, sizeof(msg)) == sizeof(msg))
			serve_one(v, &msg);
	}
	return NULL;
}

static int uffd_start(struct rvm *v)
{
	uint64_t features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_THREAD_ID;
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	struct uffdio_register reg = {
		.range = { .start = (uintptr_t)v->mem, .len = v->size },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	if (ioctl(v->uffd, UFFDIO_API, &api) || ioctl(v->uffd, UFFDIO_REGISTER, &reg))
		return -errno;
	return uffd_protect(v, 0, rvm_pages(v), UFFDIO_WRITEPROTECT_MODE_WP);
}

/* The thread takes none of the program's signals. */
static int start_server(struct rvm *v)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = -pthread_create(&v->server, NULL, serve, v);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

static int uffd_open(struct rvm *v)
{
	int ret = -1;

	v->uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (v->uffd < 0)
		return -errno;
	v->stop = eventfd(0, EFD_CLOEXEC);
	if (v->stop < 0) {
		ret = -errno;
		goto close_uffd;
	}
	ret = uffd_start(v);
	if (!ret)
		ret = start_server(v);
	if (!ret)
		return 0;
	close(v->stop);
close_uffd:
	close(v->uffd); /* this ends the protection, too */
	return ret;
}

static void uffd_close(struct rvm *v)
{
	uint64_t one = 1;

	while (write(v->stop, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(v->server, NULL);
	close(v->stop);
	close(v->uffd);
}

/* ------------------------------------------------------------------ SIGSEGV */

/* Memories whose faults come as signals. A handler may run at any time: it looks at a memory only if its range matches. */
static struct {
	_Atomic uintptr_t start; /* 0: free */
	_Atomic uintptr_t end;
	struct rvm *v;
} memories[16];
#define MEMORIES (sizeof(memories) / sizeof(*memories))

static pthread_mutex_t memories_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int n_memories;
static struct sigaction before; /* the program's own handler */

static struct rvm *memory_at(uintptr_t addr)
{
	for (size_t i = 0; i < MEMORIES; i++)
		if (atomic_load(&memories[i].start) && addr >= atomic_load(&memories[i].start) &&
		    addr < atomic_load(&memories[i].end))
			return memories[i].v;
	return NULL;
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
	bool sent = info->si_code <= 0; /* by kill(2) or the like, so it does not come again by itself */

	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(sig);
	} else if (before.sa_handler == SIG_DFL || !sent) {
		signal(sig, SIG_DFL); /* the instruction faults once more, and ends the process */
		if (sent)
			raise(sig);
	}
}

/* Only the owner comes past the checks, so no other thread is in here. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct rvm *v = info->si_code == SEGV_ACCERR ? memory_at((uintptr_t)info->si_addr) : NULL;
	int error = errno;

	if (v && txn_mine(v)) {
		size_t page = ((uintptr_t)info->si_addr - (uintptr_t)v->mem) / RVM_PAGE;

		if (page_take(v, page)) {
			fault_allow(v, page, 1);
			errno = error;
			return;
		}
	}
	pass_on(sig, info, context);
}

static int install_handler(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };

	sigfillset(&action.sa_mask); /* a handler that writes to the same page waits until the page is kept */
	return sigaction(SIGSEGV, &action, &before) ? -errno : 0;
}

/* If the program has installed another handler since then, ours stays, since the new handler may still call it. */
static void remove_handler(void)
{
	struct sigaction now;

	if (!sigaction(SIGSEGV, NULL, &now) && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
		sigaction(SIGSEGV, &before, NULL);
}

static int add_memory(struct rvm *v)
{
	for (size_t i = 0; i < MEMORIES; i++) {
		if (atomic_load(&memories[i].start))
			continue;
		memories[i].v = v;
		atomic_store(&memories[i].end, (uintptr_t)v->mem + v->size);
		atomic_store(&memories[i].start, (uintptr_t)v->mem);
		n_memories++;
		return 0;
	}
	return -ENOMEM;
}

static void remove_memory(struct rvm *v)
{
	for (size_t i = 0; i < MEMORIES; i++)
		if (atomic_load(&memories[i].start) == (uintptr_t)v->mem)
			atomic_store(&memories[i].start, 0);
	if (--n_memories == 0)
		remove_handler();
}

static int signal_open(struct rvm *v)
{
	int ret = 0;

	if (mprotect(v->mem, v->size, PROT_READ))
		return -errno;
	pthread_mutex_lock(&memories_lock);
	if (n_memories == 0)
		ret = install_handler();
	if (!ret)
		ret = add_memory(v);
	pthread_mutex_unlock(&memories_lock);
	if (ret)
		mprotect(v->mem, v->size, PROT_READ | PROT_WRITE);
	return ret;
}

static void signal_close(struct rvm *v)
{
	pthread_mutex_lock(&memories_lock);
	remove_memory(v);
	pthread_mutex_unlock(&memories_lock);
}

/*
 * A process has room for some 65000 mappings, and each single page needs one. If mappings run out, all pages are taken, which
 * needs just one mapping.
 */
static void signal_allow(struct rvm *v, size_t first, size_t count)
{
	if (!mprotect(v->mem + first * RVM_PAGE, count * RVM_PAGE, PROT_READ | PROT_WRITE))
		return;
	for (size_t page = 0; page < rvm_pages(v); page++)
		page_take(v, page);
	if (mprotect(v->mem, v->size, PROT_READ | PROT_WRITE))
		abort();
}

/* ------------------------------------------------------------------ both */

int fault_open(struct rvm *v, unsigned int flags)
{
	int ret;

	v->way = FAULT_NONE;
	if (!(flags & RVM_FAULTS))
		return 0;
	if (!(flags & RVM_SIGNAL) && !uffd_open(v)) {
		v->way = FAULT_UFFD;
		return 0;
	}
	ret = signal_open(v);
	if (!ret)
		v->way = FAULT_SIGNAL;
	return ret;
}

void fault_close(struct rvm *v)
{
	if (v->way == FAULT_UFFD)
		uffd_close(v);
	else if (v->way == FAULT_SIGNAL)
		signal_close(v);
	v->way = FAULT_NONE;
}

void fault_allow(struct rvm *v, size_t first, size_t count)
{
	if (v->way == FAULT_UFFD && uffd_protect(v, first, count, 0))
		abort(); /* or the thread that writes would wait for ever */
	if (v->way == FAULT_SIGNAL)
		signal_allow(v, first, count);
}

void fault_suspend(struct rvm *v)
{
	fault_allow(v, 0, rvm_pages(v));
}

void fault_resume(struct rvm *v)
{
	struct run run;
	int ret = 0;

	if (v->way == FAULT_UFFD)
		ret = uffd_protect(v, 0, rvm_pages(v), UFFDIO_WRITEPROTECT_MODE_WP);
	else if (v->way == FAULT_SIGNAL)
		ret = mprotect(v->mem, v->size, PROT_READ);
	if (ret)
		abort();
	for (size_t at = 0; pages_run(v, at, &run); at = run.first + run.count)
		fault_allow(v, run.first, run.count);
}

void fault_protect(struct rvm *v)
{
	struct run run;
	int ret = 0;

	if (v->way == FAULT_UFFD)
		for (size_t at = 0; !ret && pages_run(v, at, &run); at = run.first + run.count)
			ret = uffd_protect(v, run.first, run.count, UFFDIO_WRITEPROTECT_MODE_WP);
	if (v->way == FAULT_SIGNAL && atomic_load(&v->taken))
		ret = mprotect(v->mem, v->size, PROT_READ);
	if (ret)
		abort(); /* later changes would not be found, and not be kept */
}

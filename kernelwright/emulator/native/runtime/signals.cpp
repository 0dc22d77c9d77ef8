// Faults and preemption: what the processor reports about a kernel becomes a result.
//
// A handler never switches fibers itself. It rewrites the interrupted context, so that
// the thread leaves the handler in the ordinary way and finds itself elsewhere: in the
// scheduler after a fault, in kwemu_preempted after a tick of the watchdog.
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

#include "state.h"

namespace kwemu {

namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction previous[65];
volatile sig_atomic_t chained[65];
constexpr size_t kAlternateStack = 64 * 1024;

greg_t& reg(void* context, int which) {
    return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[which];
}

void leave_to_scheduler(Worker* worker, void* context, Kind why) {
    worker->end = why;
    reg(context, REG_RDI) = reinterpret_cast<greg_t>(worker->scheduler_sp);
    reg(context, REG_RIP) = reinterpret_cast<greg_t>(&kwemu_jump);
}

// Does a call end just before this address? (e8 rel32, or ff /2 with 2 to 7 bytes.)
bool follows_call(uint64_t address) {
    const unsigned char* end = reinterpret_cast<const unsigned char*>(address);
    if (end[-5] == 0xe8) return true;
    for (int length = 2; length <= 7; ++length)
        if (end[-length] == 0xff && (end[-length + 1] >> 3 & 7) == 2) return true;
    return false;
}

// The kernel's own instruction: the interrupted one, or the innermost call that led from
// the kernel into a library, looked for in the words above the stack pointer.
uint64_t kernel_pc(Worker* worker, void* context) {
    uint64_t pc = static_cast<uint64_t>(reg(context, REG_RIP));
    if (worker->in_text(pc)) return pc;
    uint64_t sp = static_cast<uint64_t>(reg(context, REG_RSP)) & ~7ull;
    for (char* stack : worker->stacks) {
        uint64_t low = reinterpret_cast<uint64_t>(stack);
        if (sp < low || sp >= low + kStackBytes) continue;
        if (sp < low + kPage) sp = low + kPage;
        for (; sp < low + kStackBytes; sp += 8) {
            uint64_t word = *reinterpret_cast<uint64_t*>(sp);
            if (worker->in_text(word) && worker->in_text(word - 7) &&
                follows_call(word))
                return word - 1;
        }
    }
    return 0;
}

void pass_on(int number, siginfo_t* info, void* context) {
    struct sigaction& before = previous[number];
    if (before.sa_handler == SIG_IGN && number == kPreempt) return;
    if (before.sa_handler == SIG_DFL && number == kPreempt) return;
    bool has_handler = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
    if (has_handler && !chained[number]) {
        // Once only: the one before may have kept us as the one before it.
        chained[number] = number != kPreempt;
        if (before.sa_flags & SA_SIGINFO) {
            before.sa_sigaction(number, info, context);
        } else {
            before.sa_handler(number);
        }
        return;
    }
    signal(number, SIG_DFL);  // the instruction faults again, and the process ends
    if (info->si_code <= 0) raise(number);
}

void on_fault(int number, siginfo_t* info, void* context) {
    Worker* worker = self;
    if (worker == nullptr || !worker->in_fibers || info->si_code <= 0) {
        pass_on(number, info, context);
        return;
    }
    if (worker->claim_outcome(kSignal, worker->current)) {
        Outcome& outcome = worker->launch->outcome;
        outcome.signal = number;
        outcome.code = info->si_code;
        outcome.address = reinterpret_cast<uint64_t>(info->si_addr);
        outcome.wrote = number == SIGSEGV && (reg(context, REG_ERR) & 2) != 0;
        outcome.stack_overflow = number == SIGSEGV && worker->is_guard(outcome.address);
        uint64_t pc = kernel_pc(worker, context);
        outcome.pc = pc ? pc - worker->launch->spec.load_address : 0;
    }
    leave_to_scheduler(worker, context, kSignal);
}

bool has_room(Worker* worker, uint64_t sp) {
    uint64_t low =
        reinterpret_cast<uint64_t>(worker->stacks[worker->stack_of[worker->current]]);
    return sp > low + kPage + 3 * 4096 && sp <= low + kStackBytes;
}

void on_preempt(int number, siginfo_t* info, void* context) {
    Worker* worker = self;
    if (worker == nullptr) {
        pass_on(number, info, context);
        return;
    }
    // Only inside the kernel's own code is the runtime sure to be in order, no lock held.
    uint64_t pc = static_cast<uint64_t>(reg(context, REG_RIP));
    if (!worker->in_fibers || worker->locked || !worker->in_text(pc)) return;
    int why = worker->launch->abandon.load(std::memory_order_relaxed);
    if (why != kFine) {
        if (why == kTimeout && worker->claim_outcome(kTimeout, worker->current)) {
            worker->launch->outcome.pc = pc - worker->launch->spec.load_address;
            worker->describe_waiters();
        }
        leave_to_scheduler(worker, context, kAbandoned);
        return;
    }
    unsigned warp = worker->current >> 5;
    bool alone = worker->warps_ready == 1u << warp &&
                 worker->ready[warp] == 1u << (worker->current & 31);
    uint64_t sp = static_cast<uint64_t>(reg(context, REG_RSP));
    if (alone || !has_room(worker, sp)) return;
    sp -= 128 + 8;
    *reinterpret_cast<uint64_t*>(sp) = pc;
    reg(context, REG_RSP) = static_cast<greg_t>(sp);
    reg(context, REG_RIP) = reinterpret_cast<greg_t>(&kwemu_preempted);
}

void install(int number, void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction current;
    sigaction(number, nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == handler) return;
    previous[number] = current;
    chained[number] = 0;
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = handler;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaddset(&ours.sa_mask, kPreempt);
    sigaction(number, &ours, nullptr);
}

}  // namespace

// Asked for at every launch: somebody may have installed a handler of their own since.
void install_handlers() {
    for (int number : kFaults) install(number, on_fault);
    install(kPreempt, on_preempt);
}

// On a worker: an alternate stack (the fiber's may be what overflowed), and no signal
// but ours (Python's belong to Python's threads).
void serve_worker_signals(Worker* worker) {
    void* place = mmap(nullptr, kAlternateStack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    worker->alternate_stack = static_cast<char*>(place);
    stack_t stack{};
    stack.ss_sp = place;
    stack.ss_size = kAlternateStack;
    sigaltstack(&stack, nullptr);
    sigset_t all;
    sigfillset(&all);
    for (int number : kFaults) sigdelset(&all, number);
    sigdelset(&all, kPreempt);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace kwemu

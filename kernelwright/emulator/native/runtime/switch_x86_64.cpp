// The switch between fibers, and the entry of a preempted one, for x86-64.
#include "state.h"

#if !defined(__x86_64__)
#error "the emulator's fibers are written for x86-64"
#endif

// `jmp` instead of `ret`: the return predictor would guess the fiber that called, and be
// wrong every time; the indirect predictor learns the round of the lanes.
asm(R"(
    .text
    .p2align 4
    .globl kwemu_switch
    .hidden kwemu_switch
    .type kwemu_switch, @function
kwemu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rdi
    .globl kwemu_jump
    .hidden kwemu_jump
    .type kwemu_jump, @function
kwemu_jump:
    movq %rdi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size kwemu_switch, .-kwemu_switch

    .p2align 4
    .globl kwemu_fiber_start
    .hidden kwemu_fiber_start
    .type kwemu_fiber_start, @function
kwemu_fiber_start:
    xorl %ebp, %ebp
    call kwemu_fiber_main
    ud2
    .size kwemu_fiber_start, .-kwemu_fiber_start

    # Entered as if called at an arbitrary instruction: the return address lies below the
    # interrupted function's red zone of 128 bytes, which the last `ret` steps over.
    .p2align 4
    .globl kwemu_preempted
    .hidden kwemu_preempted
    .type kwemu_preempted, @function
kwemu_preempted:
    pushfq
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rbx
    pushq %rbp
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, %rbp
    subq $4096, %rsp
    andq $-64, %rsp
    xorl %eax, %eax
    movq %rax, 512(%rsp)
    movq %rax, 520(%rsp)
    movq %rax, 528(%rsp)
    movq %rax, 536(%rsp)
    movq %rax, 544(%rsp)
    movq %rax, 552(%rsp)
    movq %rax, 560(%rsp)
    movq %rax, 568(%rsp)
    movl $0xe7, %eax
    xorl %edx, %edx
    xsave64 (%rsp)
    cld
    call kwemu_yield@PLT
    movl $0xe7, %eax
    xorl %edx, %edx
    xrstor64 (%rsp)
    movq %rbp, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rbp
    popq %rbx
    popq %rdx
    popq %rcx
    popq %rax
    popfq
    ret $128
    .size kwemu_preempted, .-kwemu_preempted
)");

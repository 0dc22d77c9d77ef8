import sys, time, torch, torch.nn.functional as F, traceback
import kernelwright
from triton.testing import do_bench
from solutions.epilogue import hopper as h, hopper_gated as g, hopper_conv as c

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
bf = torch.bfloat16
ACT = {
    "none": lambda v: v,
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
}


def rel(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


def part(name, f):
    try:
        f()
    except Exception as e:
        print("FAIL", name, type(e).__name__, str(e)[:600])
        torch.cuda.synchronize()


def linear():
    for m, n, k, act, bn in [
        (128, 256, 64, "none", 256),
        (128, 256, 64, "none", 128),
        (128, 256, 64, "none", 64),
        (300, 520, 200, "gelu", 256),
        (1000, 1000, 1000, "gelu_tanh", 128),
        (513, 64, 72, "silu", 64),
        (1, 8, 8, "relu", None),
        (2048, 4096, 1024, "gelu", 256),
    ]:
        for dt in (bf, torch.float16):
            x = torch.randn(m, k, device="cuda", dtype=dt) / 8
            w = torch.randn(n, k, device="cuda", dtype=dt) / 4
            b = torch.randn(n, device="cuda", dtype=dt)
            r = torch.randn(m, n, device="cuda", dtype=dt)
            pre = x.double() @ w.double().T + b
            out, _ = h.multiplied(x, w, b, act, block_n=bn)
            e1 = rel(out, ACT[act](pre))
            out, p = h.multiplied(x, w, b, act, r, keep=True, block_n=bn)
            e2 = rel(out, ACT[act](pre) + r)
            e3 = rel(p, pre)
            wt = w.T.contiguous()
            e4 = (
                rel(
                    h.multiplied(x, wt, b, act, turned=True, block_n=bn)[0],
                    ACT[act](pre),
                )
                if n % 8 == 0
                else 0
            )
            pp = pre.to(dt).double().requires_grad_()
            (s,) = torch.autograd.grad(ACT[act](pp).sum(), pp)
            e5 = rel(
                h.multiplied(
                    x, wt, None, act, pre=pp.detach().to(dt), turned=True, block_n=bn
                )[0],
                (x.double() @ w.double().T) * s,
            )
            print(
                m,
                n,
                k,
                act,
                bn,
                dt,
                *(f"{e:.1e}" for e in (e1, e2, e3, e4, e5)),
                flush=True,
            )


def gated():
    for m, n, k in [(128, 128, 64), (300, 520, 200), (2048, 1024, 512)]:
        x = torch.randn(m, k, device="cuda", dtype=bf) / 8
        a = torch.randn(n, k, device="cuda", dtype=bf)
        b = torch.randn(n, k, device="cuda", dtype=bf)
        ga, up = x.double() @ a.double().T, x.double() @ b.double().T
        o, kg, ku = g.gated(x, a, b, "silu", keep=True)
        print(
            "gated",
            rel(o, F.silu(ga) * up),
            rel(kg, ga),
            rel(ku, up),
            rel(g.gated(x, a, b, "silu")[0], F.silu(ga) * up),
            flush=True,
        )


def conv():
    for b, hh, w, ci, co, r, s, p in [
        (2, 8, 8, 64, 64, 3, 1, 1),
        (8, 56, 56, 256, 256, 3, 1, 1),
        (3, 14, 14, 72, 136, 3, 1, 1),
        (2, 28, 30, 64, 128, 3, 2, 1),
        (2, 13, 13, 16, 24, 5, 2, 2),
        (2, 9, 9, 64, 64, 1, 1, 0),
        (2, 11, 12, 64, 64, 1, 2, 0),
        (1, 7, 7, 8, 8, 3, 1, 0),
    ]:
        x = torch.randn(b, hh, w, ci, device="cuda", dtype=bf) / 4
        wt = torch.randn(co, r, r, ci, device="cuda", dtype=bf) / 8
        bi = torch.randn(co, device="cuda", dtype=bf)
        due = F.relu(
            F.conv2d(
                x.double().permute(0, 3, 1, 2),
                wt.double().permute(0, 3, 1, 2),
                bi.double(),
                stride=s,
                padding=p,
            )
        ).permute(0, 2, 3, 1)
        for bn in (None, 256, 64):
            print(
                "conv",
                (b, hh, w, ci, co, r, s, p),
                bn,
                f"{rel(c.convolved(x, wt, bi, s, p, 'relu', block_n=bn), due):.1e}",
                flush=True,
            )


def time_linear():
    m, k, n = 8192, 4096, 16384
    x = torch.randn(m, k, device="cuda", dtype=bf)
    w = torch.randn(n, k, device="cuda", dtype=bf) / 64
    b = torch.randn(n, device="cuda", dtype=bf)
    fl = 2 * m * n * k / 1e9
    t = lambda f: do_bench(f, warmup=30, rep=120, return_mode="median")
    print(
        "F.linear %.0f" % (fl / t(lambda: F.linear(x, w, b))),
        "eager gelu %.0f" % (fl / t(lambda: F.gelu(F.linear(x, w, b)))),
        flush=True,
    )
    for act in ("none", "gelu", "gelu_tanh"):
        for bn, st in ((256, 4), (256, 3), (128, 6)):
            print(
                act,
                bn,
                st,
                "%.0f"
                % (fl / t(lambda: h.multiplied(x, w, b, act, block_n=bn, stages=st))),
                flush=True,
            )
    print("keep %.0f" % (fl / t(lambda: h.multiplied(x, w, b, "gelu", keep=True))))
    pre = torch.randn(m, n, device="cuda", dtype=bf)
    wt = w.T.contiguous()
    print(
        "turned slope %.0f"
        % (fl / t(lambda: h.multiplied(x, wt, None, "gelu", pre=pre, turned=True)))
    )
    print("F.linear again %.0f" % (fl / t(lambda: F.linear(x, w, b))))


def time_gated():
    m, k, n = 8192, 4096, 11008
    x = torch.randn(m, k, device="cuda", dtype=bf)
    a, b = (torch.randn(n, k, device="cuda", dtype=bf) / 64 for _ in "ab")
    fl = 4 * m * n * k / 1e9
    t = lambda f: do_bench(f, warmup=30, rep=120, return_mode="median")
    print(
        "gated eager %.0f ours %.0f keep %.0f"
        % (
            fl / t(lambda: F.silu(F.linear(x, a)) * F.linear(x, b)),
            fl / t(lambda: g.gated(x, a, b, "silu")),
            fl / t(lambda: g.gated(x, a, b, "silu", keep=True)),
        ),
        flush=True,
    )


def t(f):
    return do_bench(f, warmup=20, rep=80, return_mode="median")


def time_conv():
    from solutions.epilogue import conv2d_bias_act

    for b, hh, ci, co, s in [
        (8, 56, 256, 256, 1),
        (8, 28, 512, 512, 1),
        (32, 14, 512, 512, 1),
        (8, 112, 128, 128, 1),
        (8, 56, 256, 512, 2),
    ]:
        x = torch.randn(b, hh, hh, ci, device="cuda", dtype=bf) / 4
        wt = torch.randn(co, 3, 3, ci, device="cuda", dtype=bf) / 8
        bi = torch.randn(co, device="cuda", dtype=bf)
        xc, wc = x.permute(0, 3, 1, 2), wt.permute(0, 3, 1, 2)
        fl = 2 * b * (hh // s) ** 2 * ci * co * 9 / 1e9

        def graph(f):
            for _ in range(3):
                f()
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                f()
            return fl / t(g.replay)

        print(
            (b, hh, ci, co, s),
            "conv only %.0f chain %.0f ours %.0f"
            % (
                fl / t(lambda: F.conv2d(xc, wc, None, s, 1)),
                fl / t(lambda: F.relu(F.conv2d(xc, wc, bi, s, 1))),
                fl / t(lambda: conv2d_bias_act(xc, wc, bi, s, 1, "relu")),
            ),
            "graphs: conv %.0f" % graph(lambda: F.conv2d(xc, wc, None, s, 1)),
            *(
                "%d/%d: %.0f"
                % (
                    n,
                    st,
                    graph(lambda: c.convolved(x, wt, bi, s, 1, "relu", block_n=n)),
                )
                for n, st in ((256, 4), (128, 6), (64, 6))
            ),
            flush=True,
        )


def time_mlp():
    from solutions.epilogue import gated_mlp, mlp, linear_gelu

    m, k, n = 8192, 4096, 11008
    x = torch.randn(m, k, device="cuda", dtype=bf, requires_grad=True)
    a, b = (
        torch.nn.Parameter(torch.randn(n, k, device="cuda", dtype=bf) / 64)
        for _ in "ab"
    )
    d = torch.nn.Parameter(torch.randn(k, n, device="cuda", dtype=bf) / 100)
    gy = torch.randn(m, k, device="cuda", dtype=bf)
    eager = lambda x, a, b, d: F.linear(F.silu(F.linear(x, a)) * F.linear(x, b), d)
    comp = torch.compile(eager)
    fl = 18 * m * n * k / 1e9

    def both(f):
        def run():
            torch.autograd.grad(f(x, a, b, d), (x, a, b, d), gy)

        for _ in range(3):
            run()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        out = f(x, a, b, d)
        kept = torch.cuda.memory_allocated() - base
        torch.autograd.grad(out, (x, a, b, d), gy)
        peak = torch.cuda.max_memory_allocated() - base
        del out
        return (
            fl / t(run),
            kept / 1e6,
            peak / 1e6,
            fl / 3 / t(lambda: f(x.detach(), a.detach(), b.detach(), d.detach())),
        )

    for name, f in (
        ("ours", gated_mlp),
        ("eager", eager),
        ("compile", comp),
        ("recompute", lambda *g: gated_mlp(*g, recompute=True)),
        ("ours", gated_mlp),
    ):
        print(
            "gated",
            name,
            "fwd+bwd %.0f TF kept %.0f MB peak %.0f MB fwd %.0f" % both(f),
            flush=True,
        )
    n = 16384
    a = torch.nn.Parameter(torch.randn(n, k, device="cuda", dtype=bf) / 64)
    b = torch.nn.Parameter(torch.randn(n, device="cuda", dtype=bf))
    d = torch.nn.Parameter(torch.randn(k, n, device="cuda", dtype=bf) / 128)
    fl = 12 * m * n * k / 1e9
    eager = lambda x, a, b, d: F.linear(F.gelu(F.linear(x, a, b)), d)
    for name, f in (("ours", mlp), ("eager", eager), ("compile", torch.compile(eager))):
        print(
            "mlp",
            name,
            "fwd+bwd %.0f TF kept %.0f MB peak %.0f MB fwd %.0f" % both(f),
            flush=True,
        )
    print(
        "linear_gelu ours %.0f eager %.0f"
        % (
            2
            * m
            * n
            * k
            / 1e9
            / t(lambda: linear_gelu(x.detach(), a.detach(), b.detach())),
            2
            * m
            * n
            * k
            / 1e9
            / t(lambda: F.gelu(F.linear(x.detach(), a.detach(), b.detach()))),
        )
    )


def time_fusion():
    from solutions.fusion import (
        gelu,
        bias_gelu,
        add_relu,
        mul_tanh,
        gelu_dropout,
        attention_score,
        source,
        launch,
    )

    def setp(a, b):
        source.PACKS, source.RANDOM_PACKS = a, b
        launch._kernel.cache_clear()

    import kernelwright.operators

    for dt in (bf, torch.float32):
        x, y = torch.randn(2, 16384, 8192, device="cuda").to(dt)
        b = y[0].clone()
        o = torch.empty_like(x)
        cp = t(lambda: o.copy_(x))

        def comp(e):
            g = torch.compile(e)
            g()
            return t(g)

        peers = {
            "gelu": (F.gelu, lambda: F.gelu(x), 2),
            "gelu_tanh": (0, lambda: F.gelu(x, approximate="tanh"), 2),
            "bias_gelu": (0, lambda: F.gelu(x + b), 2),
            "add_relu": (0, lambda: F.relu(x + y), 3),
            "mul_tanh": (0, lambda: torch.tanh(x * y), 3),
        }
        from solutions.fusion.launch import computed, backward_texts
        from solutions.fusion.functions import _GELU, _BIAS_GELU, _ADD_RELU, _MUL_TANH

        drop = f"mul({_GELU['none']}, kept(0.1))"
        ours = {
            "gelu": (_GELU["none"], [x]),
            "gelu_tanh": (_GELU["tanh"], [x]),
            "bias_gelu": (_BIAS_GELU["none"], [x, b]),
            "add_relu": (_ADD_RELU, [x, y]),
            "mul_tanh": (_MUL_TANH, [x, y]),
        }
        for name, (text, given) in ours.items():
            passes = peers[name][2]
            e = peers[name][1]
            bb, cc = t(e), comp(e)
            row = []
            for packs in (1, 2, 4):
                setp(packs, 4)
                a = t(lambda: computed(text, given, 0))
                row.append(
                    "%d: %.3f (x%.2f)" % (packs, cp * passes / 2 / a, min(bb, cc) / a)
                )
            print(
                dt,
                name,
                "of copy (of best)",
                *row,
                "eager %.3f compile %.3f"
                % (cp * passes / 2 / bb, cp * passes / 2 / cc),
                flush=True,
            )
        row = []
        for packs in (1, 2, 4, 8):
            setp(1, packs)
            a = t(lambda: computed(drop, [x], 3))
            bw = t(lambda: computed(backward_texts(drop, 1, (0,)), [x, y], 3))
            row.append("%d: %.3f bwd %.3f" % (packs, cp / a, cp * 1.5 / bw))
        print(
            dt,
            "dropout",
            *row,
            "eager %.3f" % (cp / t(lambda: F.dropout(F.gelu(x), 0.1))),
            flush=True,
        )
        del x, y, o


for name in sys.argv[1:]:
    s = time.time()
    part(name, globals()[name])
    print("--", name, "%.0f s" % (time.time() - s), flush=True)

#!/usr/bin/env python3
"""Peer driver: the official `tinker` Python SDK on the mock server.

Called like every driver (see ../../README.md): peer.py <kernel>; parameters come from the
environment, the result is one JSON object on the last stdout line.
"""

import os
import sys
import time

_T_IMPORT0 = time.time_ns()

import asyncio
import gc
import json
import logging
import random
import resource
import statistics
import threading
import urllib.request

BASE = os.environ["TINKER_BASE_URL"]
CTL = os.environ.get("BENCH_CTL_URL", BASE)  # server control, always plain HTTP


def env_i(name, default):
    return int(os.environ.get("BENCH_" + name, default))


def env_s(name, default):
    return os.environ.get("BENCH_" + name, default)


def rss_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def maxrss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu_s():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def server(path):
    with urllib.request.urlopen(CTL + path, timeout=10) as r:
        return json.load(r)


def ctl_hold():
    """w6: from here on futures stay pending (see BENCH_HOLD_CTL in README)."""
    body = env_s("HOLD_CTL", '{"delay_ms":6000}').encode()
    urllib.request.urlopen(urllib.request.Request(CTL + "/__ctl", data=body, method="POST"), timeout=10).read()


def pct(xs, p):
    xs = sorted(xs)
    return xs[min(len(xs) - 1, int(p / 100 * len(xs)))] if xs else 0.0


def lcg_tokens(seed, n):
    """Same generator as in the JS drivers, so that payload sizes match."""
    x = (seed * 2654435761 + 12345) & 0xFFFFFFFF
    out = []
    for _ in range(n):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append((x >> 8) % 151936)
    return out


class PeakRss(threading.Thread):
    """Peak RSS within a window (ru_maxrss alone cannot be reset)."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak = rss_bytes()
        self.stop = False

    def run(self):
        while not self.stop:
            self.peak = max(self.peak, rss_bytes())
            time.sleep(0.005)


def emit(workload, metrics, **extra):
    print(json.dumps({"driver": "peer", "workload": workload, "metrics": metrics, **extra}), flush=True)


def client():
    import tinker

    logging.getLogger("tinker").setLevel(logging.ERROR)
    return tinker.ServiceClient()


def sampler(svc):
    return svc.create_sampling_client(base_model="mock/base")


def finish_s(seq):
    t = seq.tokens_np
    return int(t[1]) + int(t[2]) * 1e-9


async def run_workers(n, conc, fn):
    it = iter(range(n))

    async def worker():
        for i in it:
            await fn(i)

    await asyncio.gather(*[worker() for _ in range(conc)])


async def w1():
    from tinker import types

    n, conc = env_i("N", 2000), env_i("CONC", 64)
    plen, olen = env_i("PROMPT", 512), env_i("OUT", 64)
    prompts = [lcg_tokens(i, plen) for i in range(64)]
    sc = sampler(client())
    params = types.SamplingParams(max_tokens=olen, temperature=1.0)
    lat, bad = [], 0

    async def one(i):
        nonlocal bad
        toks = prompts[i % 64]
        t0 = time.perf_counter()
        r = await sc.sample_async(types.ModelInput.from_ints(toks), 1, params)
        lat.append(time.perf_counter() - t0)
        s = r.sequences[0]
        if len(s.tokens_np) != olen or s.tokens_np[0] != toks[0] or len(s.logprobs_np) != olen:
            bad += 1

    await run_workers(min(conc, 64), min(conc, 64), one)  # warm the connections
    lat.clear()
    c0, t0 = cpu_s(), time.perf_counter()
    await run_workers(n, conc, one)
    wall, cpu = time.perf_counter() - t0, cpu_s() - c0
    emit(os.environ["BENCH_NAME"], {
        "wall_s": wall, "cpu_s": cpu, "samples_per_s": n / wall, "cpu_ms_per_sample": cpu / n * 1e3,
        "p50_ms": pct(lat, 50) * 1e3, "p99_ms": pct(lat, 99) * 1e3, "peak_rss_mb": maxrss_bytes() / 1e6, "bad": bad})


async def w2():
    import numpy as np
    from tinker import types

    nd, nt, reps = env_i("DATUMS", 256), env_i("TOKENS", 2048), env_i("INNER", 5)
    mode = env_s("INPUT", "list")
    raw = []
    for i in range(nd):
        t = lcg_tokens(i, nt + 1)
        w = [0.0 if j < nt // 4 else 1.0 for j in range(nt)]
        if mode == "typed":
            raw.append((t[:-1], np.asarray(t[1:], dtype=np.int64), np.asarray(w, dtype=np.float32)))
        else:
            raw.append((t[:-1], t[1:], w))
    svc = client()
    tc = await svc.create_lora_training_client_async(base_model="mock/base")

    def build(lo, hi):
        return [types.Datum(model_input=types.ModelInput.from_ints(t),
                            loss_fn_inputs={"target_tokens": tt, "weights": w}) for t, tt, w in raw[lo:hi]]

    async def once(k):
        data = build(0, k)
        fut = await tc.forward_backward_async(data, "cross_entropy")
        return await fut.result_async()

    await once(4)
    gc.collect()
    base_rss = rss_bytes()
    walls, cpus, builds, bad = [], [], [], 0
    server("/__reset")
    for _ in range(reps):
        c0, t0 = cpu_s(), time.perf_counter()
        r = await once(nd)
        walls.append(time.perf_counter() - t0)
        cpus.append(cpu_s() - c0)
        outs = r.loss_fn_outputs
        if len(outs) != nd or any(o["logprobs"].to_numpy().shape != (nt,) for o in outs) or r.metrics["loss:sum"] <= 0:
            bad += 1
        del r, outs
    st = server("/__stats")
    b0 = time.perf_counter()
    build(0, nd)
    builds.append(time.perf_counter() - b0)
    peak = PeakRss()  # memory in a separate pass: the sampler would disturb the timing
    peak.start()
    await once(nd)
    await once(nd)
    peak.stop = True
    peak.join()
    emit(os.environ["BENCH_NAME"], {
        "wall_s": statistics.median(walls), "cpu_s": statistics.median(cpus), "first_wall_s": walls[0],
        "build_types_s": builds[0], "base_rss_mb": base_rss / 1e6, "peak_rss_mb": peak.peak / 1e6,
        "peak_delta_mb": (peak.peak - base_rss) / 1e6, "bytes_sent_mb": st["bytes_in"] / reps / 1e6,
        "bytes_recv_mb": st["bytes_out"] / reps / 1e6, "requests_per_call": st["requests"].get("forward_backward", 0) / reps,
        "bad": bad})


async def w3():
    from tinker import types

    steps, nd, nt = env_i("STEPS", 200), env_i("DATUMS", 16), env_i("TOKENS", 256)
    raw = []
    for i in range(nd):
        t = lcg_tokens(i, nt + 1)
        raw.append((t[:-1], t[1:], [1.0] * nt))
    svc = client()
    tc = await svc.create_lora_training_client_async(base_model="mock/base")

    async def step():
        data = [types.Datum(model_input=types.ModelInput.from_ints(t),
                            loss_fn_inputs={"target_tokens": tt, "weights": w}) for t, tt, w in raw]
        fb = await tc.forward_backward_async(data, "cross_entropy")
        op = await tc.optim_step_async(types.AdamParams(learning_rate=1e-4))
        return fb, op

    for f in await step():
        await f.result_async()
    server("/__reset")
    bad = 0
    c0, t0 = cpu_s(), time.perf_counter()
    futs = [await step() for _ in range(steps)]
    t_submit = time.perf_counter() - t0
    for k, (fb, op) in enumerate(futs):
        r = await fb.result_async()
        o = await op.result_async()
        if len(r.loss_fn_outputs) != nd or int(o.metrics["seq"]) != 4 + 2 * k:
            bad += 1
    wall, cpu = time.perf_counter() - t0, cpu_s() - c0
    st = server("/__stats")
    emit(os.environ["BENCH_NAME"], {
        "wall_s": wall, "cpu_s": cpu, "steps_per_s": steps / wall, "cpu_ms_per_step": cpu / steps * 1e3,
        "submit_return_s": t_submit, "max_submit_inflight": st["max_submit_inflight"],
        "seq_unique": st["train_seq"]["unique"], "out_of_order": st["train_seq"]["out_of_order"],
        "peak_rss_mb": maxrss_bytes() / 1e6, "bad": bad + (st["train_seq"]["unique"] != 2 * steps)})


async def w4():
    from tinker import types

    n, conc, plen = env_i("N", 100), env_i("CONC", 1), env_i("PROMPT", 64)
    sc = sampler(client())
    params = types.SamplingParams(max_tokens=8)
    toks = lcg_tokens(1, plen)
    over, total = [], []

    async def one(_):
        t0 = time.time()
        r = await sc.sample_async(types.ModelInput.from_ints(toks), 1, params)
        now = time.time()
        over.append(now - finish_s(r.sequences[0]))
        total.append(now - t0)

    await run_workers(max(3, conc), conc, one)
    over.clear()
    total.clear()
    c0 = cpu_s()
    await run_workers(n, conc, one)
    emit(os.environ["BENCH_NAME"], {
        "finish_to_resume_p50_ms": pct(over, 50) * 1e3, "finish_to_resume_p90_ms": pct(over, 90) * 1e3,
        "finish_to_resume_p99_ms": pct(over, 99) * 1e3, "call_p50_ms": pct(total, 50) * 1e3,
        "cpu_ms_per_call": (cpu_s() - c0) / n * 1e3})


async def w5():
    from tinker import types

    t_imp = time.time_ns()
    sc = sampler(client())
    t_cli = time.time_ns()
    await sc.sample_async(types.ModelInput.from_ints(lcg_tokens(1, 64)), 1, types.SamplingParams(max_tokens=8))
    t_end = time.time_ns()
    start = env_i("START_NS", _T_IMPORT0)
    emit(os.environ["BENCH_NAME"], {
        "cold_start_ms": (t_end - start) / 1e6, "interp_ms": (_T_IMPORT0 - start) / 1e6,
        "import_ms": (t_imp - _T_IMPORT0) / 1e6, "connect_ms": (t_cli - t_imp) / 1e6,
        "first_sample_ms": (t_end - t_cli) / 1e6, "cpu_s": cpu_s(), "peak_rss_mb": maxrss_bytes() / 1e6})


async def w6():
    from tinker import types

    n, plen = env_i("N", 1000), env_i("PROMPT", 512)
    prompts = [lcg_tokens(i, plen) for i in range(64)]
    sc = sampler(client())
    params = types.SamplingParams(max_tokens=64)
    one = lambda i: sc.sample_async(types.ModelInput.from_ints(prompts[i % 64]), 1, params)
    await one(0)
    gc.collect()
    base = rss_bytes()
    await asyncio.to_thread(ctl_hold)
    await asyncio.to_thread(server, "/__reset")
    c0, t0 = cpu_s(), time.perf_counter()
    tasks = [asyncio.create_task(one(i)) for i in range(n)]
    held = 0
    while time.perf_counter() - t0 < 60:
        await asyncio.sleep(0.05)
        s = await asyncio.to_thread(server, "/__stats")
        held = s["held_polls"]
        if held >= n or any(t.done() for t in tasks):
            break
    t_all = time.perf_counter() - t0
    out = rss_bytes()
    conns = s["open_conns"]
    rs = await asyncio.gather(*tasks)
    bad = sum(1 for i, r in enumerate(rs) if r.sequences[0].tokens_np[0] != prompts[i % 64][0])
    emit(os.environ["BENCH_NAME"], {
        "base_rss_mb": base / 1e6, "outstanding_rss_mb": out / 1e6, "delta_mb": (out - base) / 1e6,
        "kb_per_future": (out - base) / n / 1e3, "peak_rss_mb": maxrss_bytes() / 1e6, "held_polls": held,
        "open_conns": conns, "submit_all_s": t_all, "cpu_s": cpu_s() - c0, "bad": bad + (held < n)})


async def w7():
    from tinker import types

    n, conc, plen = env_i("N", 400), env_i("CONC", 64), env_i("PROMPT", 64)
    sc = sampler(client())
    params = types.SamplingParams(max_tokens=8)
    await asyncio.to_thread(server, "/__reset")
    got, errs, bad, lat = {}, {}, 0, []

    async def one(i):
        nonlocal bad
        t0 = time.perf_counter()
        try:
            r = await sc.sample_async(types.ModelInput.from_ints([i + 1] + [7] * (plen - 1)), 1, params)
        except Exception as e:  # noqa: BLE001
            errs[type(e).__name__] = errs.get(type(e).__name__, 0) + 1
            return
        lat.append(time.perf_counter() - t0)
        got[i] = got.get(i, 0) + 1
        if r.sequences[0].tokens_np[0] != i + 1:
            bad += 1

    c0, t0 = cpu_s(), time.perf_counter()
    await run_workers(n, conc, one)
    wall, cpu = time.perf_counter() - t0, cpu_s() - c0
    st = await asyncio.to_thread(server, "/__stats")
    once = sum(1 for v in got.values() if v == 1)
    emit(os.environ["BENCH_NAME"], {
        "wall_s": wall, "cpu_s": cpu, "goodput_per_s": once / wall, "delivered_once": once, "failed": n - len(got),
        "wrong_result": bad, "executed_on_server": st["futures_created"], "extra_executions": st["futures_created"] - n,
        "dup_submits": st["dup_submits"], "redelivered": st["redelivered"], "faults": sum(st["faults"].values()),
        "p50_ms": pct(lat, 50) * 1e3, "p99_ms": pct(lat, 99) * 1e3,
        "bad": int(once != n or bad > 0)}, errors=errs, fault_detail=st["faults"], requests=st["requests"])


async def w7t():
    """Training pipeline under faults: order and exactly-once of sequence ids."""
    from tinker import types

    steps, nd, nt = env_i("STEPS", 20), env_i("DATUMS", 4), env_i("TOKENS", 64)
    tc = await client().create_lora_training_client_async(base_model="mock/base")
    await asyncio.to_thread(server, "/__reset")
    data = [types.Datum(model_input=types.ModelInput.from_ints(lcg_tokens(i, nt)),
                        loss_fn_inputs={"target_tokens": lcg_tokens(i + 1, nt), "weights": [1.0] * nt}) for i in range(nd)]
    c0, t0 = cpu_s(), time.perf_counter()
    futs = []
    for _ in range(steps):
        futs.append((await tc.forward_backward_async(data, "cross_entropy"),
                     await tc.optim_step_async(types.AdamParams())))
    bad, failed = 0, 0
    for k, (fb, op) in enumerate(futs):
        try:
            r, o = await fb.result_async(), await op.result_async()
            if len(r.loss_fn_outputs) != nd or int(o.metrics["seq"]) != 2 + 2 * k:
                bad += 1
        except Exception:  # noqa: BLE001
            failed += 1
    wall = time.perf_counter() - t0
    st = await asyncio.to_thread(server, "/__stats")
    q = st["train_seq"]
    emit(os.environ["BENCH_NAME"], {
        "wall_s": wall, "cpu_s": cpu_s() - c0, "goodput_per_s": (steps - failed) / wall, "failed": failed,
        "seq_unique": q["unique"], "seq_dups_sent": q["dups"], "out_of_order": q["out_of_order"],
        "faults": sum(st["faults"].values()), "wrong_result": bad,
        "bad": int(failed > 0 or bad > 0 or q["unique"] != 2 * steps or q["gaps"] != 0)}, fault_detail=st["faults"])


if __name__ == "__main__":
    wl = sys.argv[1]
    os.environ.setdefault("BENCH_NAME", wl)
    kernel = {"w1": w1, "w2": w2, "w3": w3, "w4": w4, "w5": w5, "w6": w6, "w7": w7, "w7t": w7t}[wl]
    asyncio.run(kernel())
    sys.stdout.flush()
    os._exit(0)  # do not bill interpreter teardown

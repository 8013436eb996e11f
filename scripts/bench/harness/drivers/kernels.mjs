// Workload kernels shared by all JavaScript drivers. A driver supplies an adapter:
//
//   await main("ours", {
//     sampler: async ({ concurrency, retry }) => ({
//       // one completed sample; tokens may be number[] or Int32Array
//       sample: async (promptTokens /* number[] */, maxTokens) => ({ tokens, logprobs }),
//     }),
//     trainer: async ({ concurrency, retry, window }) => ({
//       // data: [{ tokens, targets, weights }], number[] or typed arrays; must return immediately and
//       // keep the order of calls; resolves with one { logprobs } per datum plus combined metrics
//       forwardBackward: (data) => Promise<{ outputs: [{ logprobs }], metrics }>,
//       optimStep: () => Promise<{ metrics }>,   // first argument (optional): Adam parameters
//     }),
//   });
//
// Imports only node:fs, so that the cold-start workload is not distorted.
import { readFileSync } from "node:fs"

const BASE = process.env.TINKER_BASE_URL
const CTL = process.env.BENCH_CTL_URL ?? BASE // server control, always plain HTTP
export const envI = (k, d) => Number(process.env["BENCH_" + k] ?? d)
export const envS = (k, d) => process.env["BENCH_" + k] ?? d
export const sleep = (ms) => new Promise((r) => setTimeout(r, ms))
const nowMs = () => performance.timeOrigin + performance.now()
const rss = () => Number(readFileSync("/proc/self/statm", "utf8").split(" ")[1]) * 4096
const maxRss = () => process.resourceUsage().maxRSS * 1024
const cpuS = () => {
  const c = process.cpuUsage()
  return (c.user + c.system) / 1e6
}
const pct = (xs, p) => {
  const s = xs.toSorted((a, b) => a - b)
  return s.length ? s[Math.min(s.length - 1, Math.floor((p / 100) * s.length))] : 0
}
const median = (xs) => pct(xs, 50)
const http = async (path, init) => (await fetch(CTL + path, init)).json()
const sum = (o) => Object.values(o).reduce((a, b) => a + b, 0)

function lcgTokens(seed, n) {
  let x = (Math.imul(seed, 2654435761) + 12345) >>> 0
  const out = []
  for (let i = 0; i < n; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0
    out.push((x >>> 8) % 151936)
  }
  return out
}
async function runWorkers(n, conc, fn) {
  let i = 0
  await Promise.all(
    Array.from({ length: conc }, async () => {
      while (i < n) await fn(i++)
    }),
  )
}

async function w1(a) {
  const n = envI("N", 2000),
    conc = envI("CONC", 64),
    plen = envI("PROMPT", 512),
    olen = envI("OUT", 64)
  const prompts = Array.from({ length: 64 }, (_, i) => lcgTokens(i, plen))
  const s = await a.sampler({ concurrency: conc })
  let lat = [],
    bad = 0
  const one = async (i) => {
    const t = prompts[i % 64],
      t0 = performance.now()
    const q = await s.sample(t, olen)
    lat.push(performance.now() - t0)
    if (q.tokens.length !== olen || q.tokens[0] !== t[0] || q.logprobs.length !== olen) bad++
  }
  await runWorkers(Math.min(conc, 64), Math.min(conc, 64), one) // warm the connections, as the peer driver does
  lat = []
  const c0 = cpuS(),
    t0 = performance.now()
  await runWorkers(n, conc, one)
  const wall = (performance.now() - t0) / 1e3,
    cpu = cpuS() - c0
  return {
    wall_s: wall,
    cpu_s: cpu,
    samples_per_s: n / wall,
    cpu_ms_per_sample: (cpu / n) * 1e3,
    p50_ms: pct(lat, 50),
    p99_ms: pct(lat, 99),
    peak_rss_mb: maxRss() / 1e6,
    bad,
  }
}

async function w2(a) {
  const nd = envI("DATUMS", 256),
    nt = envI("TOKENS", 2048),
    reps = envI("INNER", 5),
    typed = envS("INPUT", "list") === "typed"
  const raw = Array.from({ length: nd }, (_, i) => {
    const t = lcgTokens(i, nt + 1),
      w = Array.from({ length: nt }, (_, j) => (j < nt / 4 ? 0 : 1))
    return typed
      ? { tokens: t.slice(0, -1), targets: Int32Array.from(t.slice(1)), weights: Float32Array.from(w) }
      : { tokens: t.slice(0, -1), targets: t.slice(1), weights: w }
  })
  const tr = await a.trainer({ concurrency: 8, window: envI("WINDOW", 1) })
  await tr.forwardBackward(raw.slice(0, 4))
  await http("/__reset")
  globalThis.gc?.()
  const base = rss()
  let peak = base,
    bad = 0
  const walls = [],
    cpus = []
  for (let r = 0; r < reps; r++) {
    const c0 = cpuS(),
      t0 = performance.now()
    const o = await tr.forwardBackward(raw)
    walls.push((performance.now() - t0) / 1e3)
    cpus.push(cpuS() - c0)
    if (o.outputs.length !== nd || o.outputs.some((x) => x.logprobs.length !== nt) || !(o.metrics["loss:sum"] > 0))
      bad++
  }
  const st = await http("/__stats")
  const tick = setInterval(() => {
    peak = Math.max(peak, rss())
  }, 2) // memory in a separate pass
  await tr.forwardBackward(raw)
  await tr.forwardBackward(raw)
  peak = Math.max(peak, rss())
  clearInterval(tick)
  return {
    wall_s: median(walls),
    cpu_s: median(cpus),
    first_wall_s: walls[0],
    base_rss_mb: base / 1e6,
    peak_rss_mb: peak / 1e6,
    peak_delta_mb: (peak - base) / 1e6,
    bytes_sent_mb: st.bytes_in / reps / 1e6,
    bytes_recv_mb: st.bytes_out / reps / 1e6,
    requests_per_call: (st.requests.forward_backward ?? 0) / reps,
    bad,
  }
}

async function w3(a) {
  const steps = envI("STEPS", 200),
    nd = envI("DATUMS", 16),
    nt = envI("TOKENS", 256)
  const data = Array.from({ length: nd }, (_, i) => {
    const t = lcgTokens(i, nt + 1)
    return { tokens: t.slice(0, -1), targets: t.slice(1), weights: Array.from({ length: nt }, () => 1) }
  })
  const tr = await a.trainer({ concurrency: 64, window: envI("WINDOW", 1) })
  await Promise.all([tr.forwardBackward(data), tr.optimStep()])
  await http("/__reset")
  let bad = 0
  const c0 = cpuS(),
    t0 = performance.now(),
    ps = []
  for (let k = 0; k < steps; k++) ps.push(tr.forwardBackward(data), tr.optimStep())
  const tSubmit = (performance.now() - t0) / 1e3
  const rs = await Promise.all(ps)
  for (let k = 0; k < steps; k++) if (rs[2 * k].outputs.length !== nd || rs[2 * k + 1].metrics.seq !== 4 + 2 * k) bad++
  const wall = (performance.now() - t0) / 1e3,
    cpu = cpuS() - c0,
    st = await http("/__stats")
  return {
    wall_s: wall,
    cpu_s: cpu,
    steps_per_s: steps / wall,
    cpu_ms_per_step: (cpu / steps) * 1e3,
    submit_return_s: tSubmit,
    max_submit_inflight: st.max_submit_inflight,
    seq_unique: st.train_seq.unique,
    out_of_order: st.train_seq.out_of_order,
    peak_rss_mb: maxRss() / 1e6,
    bad: bad + (st.train_seq.unique !== 2 * steps ? 1 : 0),
  }
}

async function w4(a) {
  const n = envI("N", 100),
    conc = envI("CONC", 1),
    toks = lcgTokens(1, envI("PROMPT", 64))
  const s = await a.sampler({ concurrency: conc })
  let over = [],
    total = []
  const one = async () => {
    const t0 = nowMs()
    const q = await s.sample(toks, 8)
    const t = nowMs()
    over.push(t - (q.tokens[1] * 1e3 + q.tokens[2] / 1e6))
    total.push(t - t0)
  }
  await runWorkers(Math.max(3, conc), conc, one)
  over = []
  total = []
  const c0 = cpuS()
  await runWorkers(n, conc, one)
  return {
    finish_to_resume_p50_ms: pct(over, 50),
    finish_to_resume_p90_ms: pct(over, 90),
    finish_to_resume_p99_ms: pct(over, 99),
    call_p50_ms: pct(total, 50),
    cpu_ms_per_call: ((cpuS() - c0) / n) * 1e3,
  }
}

async function w5(a) {
  const start = process.env.BENCH_START_NS
    ? Number(BigInt(process.env.BENCH_START_NS) / 1000n) / 1e3
    : performance.timeOrigin
  const tImp = nowMs()
  const s = await a.sampler({ concurrency: 1 })
  const tCli = nowMs()
  await s.sample(lcgTokens(1, 64), 8)
  const tEnd = nowMs()
  return {
    cold_start_ms: tEnd - start,
    interp_ms: performance.timeOrigin - start,
    import_ms: tImp - performance.timeOrigin,
    connect_ms: tCli - tImp,
    first_sample_ms: tEnd - tCli,
    cpu_s: cpuS(),
    peak_rss_mb: maxRss() / 1e6,
  }
}

async function w6(a) {
  const n = envI("N", 1000),
    prompts = Array.from({ length: 64 }, (_, i) => lcgTokens(i, envI("PROMPT", 512)))
  const s = await a.sampler({ concurrency: n })
  await s.sample(prompts[0], 64)
  await http("/__stats") // load fetch before the baseline
  globalThis.gc?.()
  const base = rss()
  await http("/__ctl", { method: "POST", body: envS("HOLD_CTL", '{"delay_ms":6000}') })
  await http("/__reset")
  const c0 = cpuS(),
    t0 = performance.now()
  const ps = Array.from({ length: n }, (_, i) => s.sample(prompts[i % 64], 64))
  const anyDone = Promise.race(ps).then(() => true)
  let st
  do {
    if (await Promise.race([anyDone, sleep(50)])) break
    st = await http("/__stats")
  } while (st.held_polls < n && performance.now() - t0 < 60_000)
  const tAll = (performance.now() - t0) / 1e3,
    out = rss()
  const rs = await Promise.all(ps)
  const bad = rs.filter((r, i) => r.tokens[0] !== prompts[i % 64][0]).length
  return {
    base_rss_mb: base / 1e6,
    outstanding_rss_mb: out / 1e6,
    delta_mb: (out - base) / 1e6,
    kb_per_future: (out - base) / n / 1e3,
    peak_rss_mb: maxRss() / 1e6,
    held_polls: st.held_polls,
    open_conns: st.open_conns,
    submit_all_s: tAll,
    cpu_s: cpuS() - c0,
    bad: bad + (st.held_polls < n ? 1 : 0),
  }
}

async function w7(a, extra) {
  const n = envI("N", 400),
    conc = envI("CONC", 64),
    plen = envI("PROMPT", 64)
  const s = await a.sampler({ concurrency: conc, retry: true })
  await http("/__reset")
  const got = new Map(),
    lat = [],
    errors = {}
  let bad = 0
  const c0 = cpuS(),
    t0 = performance.now()
  await runWorkers(n, conc, async (i) => {
    const t1 = performance.now()
    let q
    try {
      q = await s.sample([i + 1, ...Array.from({ length: plen - 1 }, () => 7)], 8)
    } catch (e) {
      const k = e?._tag ?? e?.name ?? "Error"
      errors[k] = (errors[k] ?? 0) + 1
      return
    }
    if (q.tokens[0] !== i + 1) bad++
    got.set(i, (got.get(i) ?? 0) + 1)
    lat.push(performance.now() - t1)
  })
  const wall = (performance.now() - t0) / 1e3,
    cpu = cpuS() - c0,
    st = await http("/__stats")
  const once = [...got.values()].filter((v) => v === 1).length
  Object.assign(extra, { errors, fault_detail: st.faults, requests: st.requests })
  return {
    wall_s: wall,
    cpu_s: cpu,
    goodput_per_s: once / wall,
    delivered_once: once,
    failed: n - got.size,
    wrong_result: bad,
    executed_on_server: st.futures_created,
    extra_executions: st.futures_created - n,
    dup_submits: st.dup_submits,
    redelivered: st.redelivered,
    faults: sum(st.faults),
    p50_ms: pct(lat, 50),
    p99_ms: pct(lat, 99),
    bad: once !== n || bad ? 1 : 0,
  }
}

async function w7t(a, extra) {
  const steps = envI("STEPS", 20),
    nd = envI("DATUMS", 4),
    nt = envI("TOKENS", 64)
  const tr = await a.trainer({ concurrency: 64, retry: true, window: envI("WINDOW", 1) })
  await http("/__reset")
  const data = Array.from({ length: nd }, (_, i) => ({
    tokens: lcgTokens(i, nt),
    targets: lcgTokens(i + 1, nt),
    weights: Array.from({ length: nt }, () => 1),
  }))
  const c0 = cpuS(),
    t0 = performance.now()
  const ps = []
  for (let k = 0; k < steps; k++)
    ps.push(
      Promise.all([tr.forwardBackward(data), tr.optimStep()]).then(
        ([r, o]) => (r.outputs.length === nd && o.metrics.seq === 2 + 2 * k ? 0 : 1),
        () => -1,
      ),
    )
  const rs = await Promise.all(ps)
  const wall = (performance.now() - t0) / 1e3,
    st = await http("/__stats"),
    q = st.train_seq
  const failed = rs.filter((x) => x < 0).length,
    wrong = rs.filter((x) => x > 0).length
  Object.assign(extra, { fault_detail: st.faults })
  return {
    wall_s: wall,
    cpu_s: cpuS() - c0,
    goodput_per_s: (steps - failed) / wall,
    failed,
    seq_unique: q.unique,
    seq_dups_sent: q.dups,
    out_of_order: q.out_of_order,
    faults: sum(st.faults),
    wrong_result: wrong,
    bad: failed || wrong || q.unique !== 2 * steps || q.gaps ? 1 : 0,
  }
}

const kernels = { w1, w2, w3, w4, w5, w6, w7, w7t }

export async function main(driver, adapter) {
  const name = process.argv[2],
    k = kernels[name],
    extra = {}
  const missing = name?.startsWith("w3") || name === "w2" || name === "w7t" ? !adapter.trainer : !adapter.sampler
  const metrics = !k || missing ? ((extra.skipped = true), {}) : await k(adapter, extra)
  const line = JSON.stringify({ driver, workload: envS("NAME", name), metrics, ...extra }) + "\n"
  process.stdout.write(line, () => process.exit(0)) // exit only after the line is flushed
}

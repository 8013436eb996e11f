// CPU per sample round trip (asample + retrieve_future) for the HTTP clients a
// TypeScript SDK can choose from. Usage: node scripts/bench/transports.mjs <variant> ; env as for drivers.
// variants: dispatch request fetch globalfetch http h2 h2undici
import { createRequire } from "node:module"
const require = createRequire(new URL("../drivers/package.json", import.meta.url))
const BASE = process.env.TINKER_BASE_URL,
  N = +(process.env.BENCH_N ?? 4000),
  CONC = +(process.env.BENCH_CONC ?? 64)
const variant = process.argv[2]
const H = { "content-type": "application/json", "x-api-key": "tml-bench" },
  HR = { ...H, accept: "application/x-protobuf" }
const flat = (h) => Object.entries(h).flat(),
  F = new Map([
    [H, flat(H)],
    [HR, flat(HR)],
  ])
const tls = BASE.startsWith("https:")
let post
if (variant === "dispatch" || variant === "request" || variant === "fetch" || variant === "h2undici") {
  const { Pool, fetch } = require("undici")
  const h2 = variant === "h2undici"
  const pool = new Pool(BASE, {
    connections: h2 ? Math.ceil(CONC / 50) : CONC,
    pipelining: h2 ? 50 : 1,
    allowH2: h2,
    maxConcurrentStreams: 50,
  })
  if (variant === "request")
    post = async (path, headers, body) =>
      Buffer.from(await (await pool.request({ path, method: "POST", headers, body })).body.arrayBuffer())
  else if (variant === "fetch")
    post = async (path, headers, body) =>
      Buffer.from(await (await fetch(BASE + path, { method: "POST", headers, body, dispatcher: pool })).arrayBuffer())
  else
    post = (path, headers, body) =>
      new Promise((res, rej) => {
        let d
        pool.dispatch(
          { path, method: "POST", headers: F.get(headers), body, idempotent: h2 },
          {
            onConnect() {},
            onHeaders() {
              return true
            },
            onData(c) {
              d = d ? Buffer.concat([d, c]) : c
              return true
            },
            onComplete() {
              res(d)
            },
            onError: rej,
          },
        )
      })
} else if (variant === "globalfetch") {
  post = async (path, headers, body) =>
    Buffer.from(await (await fetch(BASE + path, { method: "POST", headers, body })).arrayBuffer())
} else if (variant === "http") {
  const http = require(tls ? "node:https" : "node:http"),
    agent = new http.Agent({ keepAlive: true, maxSockets: CONC }),
    u = new URL(BASE)
  post = (path, headers, body) =>
    new Promise((res, rej) => {
      const r = http.request(
        {
          host: u.hostname,
          port: u.port,
          path,
          method: "POST",
          headers: { ...headers, "content-length": Buffer.byteLength(body) },
          agent,
        },
        (m) => {
          let d
          m.on("data", (c) => {
            d = d ? Buffer.concat([d, c]) : c
          })
          m.on("end", () => res(d))
        },
      )
      r.on("error", rej)
      r.end(body)
    })
} else if (variant === "h2") {
  const http2 = require("node:http2"),
    cs = Array.from({ length: Math.ceil(CONC / 50) }, () => http2.connect(BASE))
  let k = 0
  post = (path, headers, body) =>
    new Promise((res, rej) => {
      const s = cs[k++ % cs.length].request({ ":method": "POST", ":path": path, ...headers })
      let d
      s.on("data", (c) => {
        d = d ? Buffer.concat([d, c]) : c
      })
      s.on("end", () => res(d))
      s.on("error", rej)
      s.end(body)
    })
}
const prompt = Array.from({ length: 512 }, (_, i) => (i * 7919) % 151936)
let seq = 0
const sess = "t" + Date.now()
const one = async () => {
  const f = JSON.parse(
    await post(
      "/api/v1/asample",
      H,
      JSON.stringify({
        prompt: { chunks: [{ tokens: prompt, type: "encoded_text" }] },
        sampling_params: { max_tokens: 64 },
        sampling_session_id: sess,
        seq_id: seq++,
        num_samples: 1,
      }),
    ),
  )
  const b = await post("/api/v1/retrieve_future", HR, JSON.stringify({ request_id: f.request_id }))
  if (b[0] !== 10) throw new Error("bad")
}
const run = async (n) => {
  let i = 0
  await Promise.all(
    Array.from({ length: CONC }, async () => {
      while (i++ < n) await one()
    }),
  )
}
await run(1000)
const c0 = process.cpuUsage(),
  t0 = performance.now()
await run(N)
const c = process.cpuUsage(c0),
  w = performance.now() - t0
console.log(
  JSON.stringify({
    variant,
    tls,
    conc: CONC,
    cpu_ms_per_sample: +((c.user + c.system) / 1e3 / N).toFixed(4),
    samples_per_s: Math.round((N / w) * 1e3),
  }),
)
process.exit(0)

// Raw-limit driver: undici Pool + hand-rolled JSON/protobuf, no SDK, no Effect.
// It performs exactly the wire exchange an SDK has to perform (same endpoints,
// same payloads, same number of requests) and nothing else.
//
// Called like every driver (see ../../README.md): node limit.mjs <kernel>
import { decodeFwdBwd, decodeSample, encodeFwdBwd } from "./codec.mjs"
import { envI, main, sleep } from "./kernels.mjs"

const BASE = process.env.TINKER_BASE_URL
const KEY = process.env.TINKER_API_KEY ?? "tml-bench"

class Handler {
  constructor(res, rej) {
    this.res = res
    this.rej = rej
    this.status = 0
    this.headers = null
    this.first = null
    this.rest = null
  }
  onConnect() {}
  onHeaders(status, headers) {
    this.status = status
    this.headers = headers
    return true
  }
  onData(chunk) {
    if (this.first === null) this.first = chunk
    else (this.rest ??= [this.first]).push(chunk)
    return true
  }
  onComplete() {
    this.res({ status: this.status, headers: this.headers, body: this.rest ? Buffer.concat(this.rest) : this.first })
  }
  onError(e) {
    this.rej(e)
  }
}
let nodeHttp, agent
async function nodePost(path, headers, body) {
  nodeHttp ??= await import(BASE.startsWith("https:") ? "node:https" : "node:http")
  agent ??= new nodeHttp.Agent({ keepAlive: true })
  const h = { "content-length": Buffer.byteLength(body) }
  for (let i = 0; i < headers.length; i += 2) h[headers[i]] = headers[i + 1]
  return new Promise((res, rej) => {
    const req = nodeHttp.request(BASE + path, { method: "POST", headers: h, agent }, (r) => {
      const parts = []
      r.on("data", (c) => parts.push(c))
      r.on("end", () =>
        res({ status: r.statusCode, headers: [], body: parts.length === 1 ? parts[0] : Buffer.concat(parts) }),
      )
      r.on("error", rej)
    })
    req.on("error", rej)
    req.end(body)
  })
}
const header = (r, name) => {
  for (let i = 0; i < r.headers.length; i += 2)
    if (r.headers[i].toString("latin1").toLowerCase() === name) return r.headers[i + 1].toString("latin1")
}

// https: HTTP/2 with a few connections, as the peer does; http: HTTP/1.1.
const H2 = BASE.startsWith("https:") && envI("H2", 1) === 1
// undici never multiplexes a POST over HTTP/2 unless it is declared idempotent
// (it is here: sequence ids make resubmission safe). HTTP/1.1 does not need it.
const IDEMPOTENT = H2
const STREAMS = envI("H2_STREAMS", 50)
// The start-up workload uses node:http, which is cheaper to load than undici.
const { Pool } = process.argv[2] === "w5" ? {} : await import("undici")

class Api {
  constructor(connections, retry = false) {
    if (retry) this.post = (...a) => retrying(() => Api.prototype.post.apply(this, a))
    const opts = { headersTimeout: 60_000, bodyTimeout: 60_000, keepAliveTimeout: 60_000 }
    if (Pool)
      this.pool = new Pool(
        BASE,
        H2
          ? {
              ...opts,
              connections: Math.ceil(connections / STREAMS),
              allowH2: true,
              maxConcurrentStreams: STREAMS,
              pipelining: STREAMS,
            }
          : { ...opts, connections, pipelining: 1 },
      )
    this.hJson = ["content-type", "application/json", "x-api-key", KEY]
    this.hRetrieve = [...this.hJson, "accept", "application/x-protobuf"]
    this.hProto = ["content-type", "application/x-protobuf", "x-api-key", KEY]
  }
  post(path, headers, body) {
    if (!this.pool) return nodePost(path, headers, body)
    return new Promise((res, rej) =>
      this.pool.dispatch({ path, method: "POST", headers, body, idempotent: IDEMPOTENT }, new Handler(res, rej)),
    )
  }
  async json(path, obj) {
    const r = await this.post(path, this.hJson, JSON.stringify(obj))
    if (r.status !== 200) throw new Error("status " + r.status)
    return JSON.parse(r.body)
  }
  async retrieve(id) {
    // long-poll loop
    const body = '{"request_id":"' + id + '","allow_metadata_only":true}'
    for (;;) {
      const r = await this.post("/api/v1/retrieve_future", this.hRetrieve, body)
      if (r.status === 200) {
        if (r.body[0] !== 0x7b) return r.body // protobuf never starts with '{' (field 15, group)
        const j = JSON.parse(r.body)
        if (j.type !== "try_again") return j
      } else if (r.status !== 408) throw new Error("status " + r.status)
    }
  }
  async bootstrap() {
    // same start-up exchange as the peer
    await this.json("/api/v1/client/config", { sdk_version: "bench" })
    await this.json("/api/v1/client/dynamic_config", { sdk_version: "bench" })
    return (
      await this.json("/api/v1/create_session", {
        tags: [],
        user_metadata: {},
        sdk_version: "bench",
        type: "create_session",
      })
    ).session_id
  }
  async sampler() {
    const sid = await this.bootstrap()
    const r = await this.json("/api/v1/create_sampling_session", {
      session_id: sid,
      sampling_session_seq_id: 0,
      base_model: "mock/base",
      type: "create_sampling_session",
    })
    return new Sampler(this, r.sampling_session_id)
  }
  async trainer() {
    const sid = await this.bootstrap()
    const f = await this.json("/api/v1/create_model", {
      session_id: sid,
      model_seq_id: 0,
      base_model: "mock/base",
      lora_config: { rank: 32 },
      type: "create_model",
    })
    return new Trainer(this, (await this.retrieve(f.request_id)).model_id)
  }
}

// Reference retry policy (a choice, not a protocol limit): per request only,
// Retry-After honored on 429, otherwise 10 ms * 2^k with jitter; 408 immediately.
async function retrying(fn) {
  for (let k = 0; ; k++) {
    let wait = Math.min(10 * 2 ** k, 1000) * (0.5 + Math.random())
    try {
      const r = await fn()
      if (r.status === 200) return r
      if (r.status === 408) wait = 0
      if (r.status === 429) wait = Number(header(r, "retry-after") ?? 0) * 1e3 || wait
    } catch {
      /* connection error */
    }
    if (wait) await sleep(wait)
  }
}

class Sampler {
  constructor(api, id) {
    this.api = api
    this.id = id
    this.seq = 0
  }
  body(tokens, maxTokens, seq) {
    return JSON.stringify({
      num_samples: 1,
      prompt: { chunks: [{ tokens, type: "encoded_text" }] },
      sampling_params: { max_tokens: maxTokens, temperature: 1, top_k: -1, top_p: 1 },
      sampling_session_id: this.id,
      seq_id: seq,
      prompt_logprobs: false,
      topk_prompt_logprobs: 0,
      type: "sample",
    })
  }
  async sample(tokens, maxTokens) {
    const r = await this.api.post("/api/v1/asample", this.api.hJson, this.body(tokens, maxTokens, this.seq++))
    if (r.status !== 200) throw new Error("status " + r.status)
    return decodeSample(await this.api.retrieve(JSON.parse(r.body).request_id)).sequences[0]
  }
}

class Trainer {
  constructor(api, id) {
    this.api = api
    this.id = id
    this.seq = 1
    this.turn = Promise.resolve()
    this.window = []
    this.max = envI("WINDOW", 1)
  }
  chunks(data) {
    // <= 5 MB estimated payload per request, as in the peer's default client config
    const out = []
    let cur = [],
      bytes = 0
    for (const d of data) {
      const e = d.tokens.length * 4 + d.targets.length * 8 + d.weights.length * 4
      if (cur.length && (bytes + e > 5_000_000 || cur.length === 1024)) {
        out.push(cur)
        cur = []
        bytes = 0
      }
      cur.push(d)
      bytes += e
    }
    out.push(cur)
    return out
  }
  // At most `max` submissions in flight, started in order (max = 1: the peer's semantics).
  async slot(fn) {
    const prev = this.window.length >= this.max ? this.window.shift() : undefined
    let done
    const mine = new Promise((r) => (done = r))
    this.window.push(mine)
    if (prev) await prev
    try {
      return await fn()
    } finally {
      done()
    }
  }
  async submit(path, headers, body) {
    const r = await this.api.post(path, headers, body)
    if (r.status !== 200) throw new Error("status " + r.status + " " + r.body)
    return JSON.parse(r.body).request_id
  }
  async forwardBackward(data) {
    const cs = this.chunks(data).map((c) => [this.seq++, c])
    const send = async ([seq, c]) =>
      decodeFwdBwd(
        await this.api.retrieve(
          await this.submit("/api/v1/forward_backward", this.api.hProto, encodeFwdBwd(this.id, seq, c)),
        ),
      )
    if (cs.length === 1) {
      const id = await this.slot(() =>
        this.submit("/api/v1/forward_backward", this.api.hProto, encodeFwdBwd(this.id, cs[0][0], cs[0][1])),
      )
      return decodeFwdBwd(await this.api.retrieve(id))
    }
    const rs = await Promise.all(cs.map(send))
    const metrics = {}
    for (const r of rs) for (const k in r.metrics) metrics[k] = (metrics[k] ?? 0) + r.metrics[k]
    return { outputs: rs.flatMap((r) => r.outputs), metrics }
  }
  async optimStep() {
    const seq = this.seq++
    const body = JSON.stringify({
      adam_params: { learning_rate: 1e-4, beta1: 0.9, beta2: 0.95, eps: 1e-12, weight_decay: 0, grad_clip_norm: 0 },
      model_id: this.id,
      seq_id: seq,
      type: "optim_step",
    })
    return this.api.retrieve(await this.slot(() => this.submit("/api/v1/optim_step", this.api.hJson, body)))
  }
}

await main("limit", {
  sampler: ({ concurrency, retry }) => new Api(envI("CONNS", concurrency), retry).sampler(),
  trainer: ({ concurrency, retry }) => new Api(envI("CONNS", concurrency), retry).trainer(),
})

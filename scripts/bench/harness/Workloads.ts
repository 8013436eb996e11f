/** Defines the workloads and gates. */

export type Driver = "peer" | "ours" | "limit"
export type Better = "higher" | "lower"

export interface Workload {
  readonly id: string
  readonly kernel: string
  readonly about: string
  /** Parameters of the driver, as `BENCH_<name>`. */
  readonly parameters: Readonly<Record<string, number | string>>
  /** Settings of the mock server during the workload. */
  readonly server: Readonly<Record<string, unknown>>
  /** The metrics to show. */
  readonly metrics: Readonly<Record<string, Better>>
  /** Runs of each driver in a repetition. Default: 1. */
  readonly runs?: number
  /** Whether our driver runs from a bundle. */
  readonly bundled?: boolean
  /** Whether it is a main workload, which `--quick` runs. */
  readonly quick?: boolean
}

const faults = (...kinds: ReadonlyArray<string>) => ({ fault_permille: 50, fault_kinds: kinds })

export const workloads: ReadonlyArray<Workload> = [
  {
    id: "W1-c64",
    quick: true,
    kernel: "w1",
    about: "2,000 samples, 64 in flight, 512 prompt and 64 output tokens",
    parameters: { N: 2000, CONC: 64, PROMPT: 512, OUT: 64 },
    server: {},
    metrics: { samples_per_s: "higher", cpu_ms_per_sample: "lower", p50_ms: "lower", p99_ms: "lower" },
  },
  {
    id: "W1-c256",
    kernel: "w1",
    about: "the same, 256 in flight",
    parameters: { N: 2000, CONC: 256, PROMPT: 512, OUT: 64 },
    server: {},
    metrics: { samples_per_s: "higher", cpu_ms_per_sample: "lower", p99_ms: "lower" },
  },
  {
    id: "W2-list",
    quick: true,
    kernel: "w2",
    about: "forward_backward of 256 x 2,048 tokens in plain arrays",
    parameters: { DATUMS: 256, TOKENS: 2048, INNER: 5, INPUT: "list" },
    server: {},
    metrics: { wall_s: "lower", cpu_s: "lower", peak_delta_mb: "lower", bytes_sent_mb: "lower" },
  },
  {
    id: "W2-typed",
    quick: true,
    kernel: "w2",
    about: "the same, targets and weights in typed arrays (numpy)",
    parameters: { DATUMS: 256, TOKENS: 2048, INNER: 5, INPUT: "typed" },
    server: {},
    metrics: { wall_s: "lower", cpu_s: "lower", peak_delta_mb: "lower" },
  },
  {
    id: "W3",
    quick: true,
    kernel: "w3",
    about: "200 x (forward_backward of 16 x 256 tokens and optim_step), all submitted ahead",
    parameters: { STEPS: 200, DATUMS: 16, TOKENS: 256 },
    server: {},
    metrics: { steps_per_s: "higher", cpu_ms_per_step: "lower", submit_return_s: "lower" },
  },
  {
    id: "W3-rtt10",
    kernel: "w3",
    about: "100 steps, 10 ms latency per response, one submission in flight",
    parameters: { STEPS: 100, DATUMS: 16, TOKENS: 256 },
    server: { latency_ms: 10 },
    metrics: { steps_per_s: "higher" },
  },
  {
    id: "W4-poll",
    kernel: "w4",
    about: "one caller, results ready after 20 ms: time from ready to resumed",
    parameters: { N: 100, CONC: 1 },
    server: { delay_ms: 20 },
    metrics: { finish_to_resume_p50_ms: "lower", finish_to_resume_p90_ms: "lower", cpu_ms_per_call: "lower" },
  },
  {
    id: "W4-c8",
    quick: true,
    kernel: "w4",
    about: "8 callers, results ready after 80 to 120 ms",
    parameters: { N: 400, CONC: 8 },
    server: { delay_ms: 80, delay_jitter_ms: 40 },
    metrics: { finish_to_resume_p50_ms: "lower", finish_to_resume_p99_ms: "lower", cpu_ms_per_call: "lower" },
  },
  {
    id: "W4-c64",
    kernel: "w4",
    about: "64 callers, results ready after 50 to 100 ms (more than the peer can handle)",
    parameters: { N: 1280, CONC: 64 },
    server: { delay_ms: 50, delay_jitter_ms: 50 },
    metrics: { finish_to_resume_p50_ms: "lower", finish_to_resume_p99_ms: "lower", cpu_ms_per_call: "lower" },
  },
  {
    id: "W4-try5",
    kernel: "w4",
    about: "five try_again responses before the result",
    parameters: { N: 100, CONC: 1 },
    server: { try_again_n: 5 },
    metrics: { call_p50_ms: "lower", cpu_ms_per_call: "lower" },
  },
  {
    id: "W5",
    quick: true,
    kernel: "w5",
    about: "from process start to the first sample",
    parameters: {},
    server: {},
    metrics: { cold_start_ms: "lower", import_ms: "lower", cpu_s: "lower", peak_rss_mb: "lower" },
    runs: 3,
  },
  {
    id: "W5-bundle",
    kernel: "w5",
    about: "the same, with our driver bundled into one file and minified by esbuild",
    parameters: {},
    server: {},
    metrics: { cold_start_ms: "lower", import_ms: "lower", cpu_s: "lower", peak_rss_mb: "lower" },
    runs: 3,
    bundled: true,
  },
  {
    id: "W6",
    quick: true,
    kernel: "w6",
    about: "memory while 1,000 results are pending",
    parameters: { N: 1000, PROMPT: 512, HOLD_CTL: '{"delay_ms":6000}' },
    server: {},
    metrics: { outstanding_rss_mb: "lower", kb_per_future: "lower", submit_all_s: "lower", open_conns: "lower" },
  },
  {
    id: "W7-sample",
    kernel: "w7",
    about: "400 samples, 64 in flight, 5 % faults: 429 with Retry-After 1, 500, reset, 408",
    parameters: { N: 400, CONC: 64 },
    server: faults("429", "500", "reset", "408"),
    metrics: { goodput_per_s: "higher", p99_ms: "lower", extra_executions: "lower" },
  },
  {
    id: "W7-lost",
    quick: true,
    kernel: "w7",
    about: "the same, 5 % of the responses lost after the server did the work",
    parameters: { N: 400, CONC: 64 },
    server: faults("reset_after"),
    metrics: { goodput_per_s: "higher", dup_submits: "lower", redelivered: "lower", extra_executions: "lower" },
  },
  {
    id: "W7-train",
    quick: true,
    kernel: "w7t",
    about: "20 training steps under the faults of W7-sample",
    parameters: { STEPS: 20, DATUMS: 4, TOKENS: 64 },
    server: faults("429", "500", "reset", "408"),
    metrics: { goodput_per_s: "higher", seq_dups_sent: "lower" },
  },
]

/**
 * A requirement for a row: `vsPeer` is the factor by which ours is better than the peer, `toLimit` the factor by which
 * the limit is better than ours.
 */
export interface Gate {
  readonly workload: string
  readonly metric: string
  readonly vsPeer?: { readonly atLeast: number }
  readonly toLimit?: { readonly atMost: number }
  readonly ours?: { readonly atMost: number }
}

const sixfold = { vsPeer: { atLeast: 6 }, toLimit: { atMost: 1.5 } }

export const gates: ReadonlyArray<Gate> = [
  { workload: "W1-c64", metric: "cpu_ms_per_sample", ...sixfold },
  { workload: "W1-c256", metric: "cpu_ms_per_sample", ...sixfold },
  ...["W2-list", "W2-typed"].flatMap((workload) => [
    { workload, metric: "cpu_s", vsPeer: { atLeast: 1.5 } },
    { workload, metric: "peak_delta_mb", vsPeer: { atLeast: 1 / 1.3 } },
  ]),
  { workload: "W3", metric: "steps_per_s", vsPeer: { atLeast: 3 } },
  { workload: "W3-rtt10", metric: "steps_per_s", toLimit: { atMost: 1 / 0.9 } },
  ...["W4-poll", "W4-c8", "W4-c64"].map((workload) => ({
    workload,
    metric: "finish_to_resume_p50_ms",
    toLimit: { atMost: 2 },
  })),
  { workload: "W5", metric: "cold_start_ms", vsPeer: { atLeast: 2 } },
  { workload: "W5-bundle", metric: "cold_start_ms", vsPeer: { atLeast: 2 } },
  { workload: "W6", metric: "kb_per_future", ours: { atMost: 50 } },
  { workload: "W7-sample", metric: "goodput_per_s", vsPeer: { atLeast: 3 } },
  { workload: "W7-lost", metric: "goodput_per_s", vsPeer: { atLeast: 3 } },
  { workload: "W7-sample", metric: "extra_executions", ours: { atMost: 0 } },
  { workload: "W7-lost", metric: "extra_executions", ours: { atMost: 0 } },
  { workload: "W7-train", metric: "goodput_per_s", toLimit: { atMost: 1 / 0.9 } },
]

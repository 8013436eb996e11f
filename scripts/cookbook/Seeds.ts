/**
 * Makes both sides draw the same random numbers. The cookbook sends no seeds, neither for new adapters nor for samples,
 * and has no setting for them, while our recipes send seeds that follow from the configuration. Our run comes first,
 * through a proxy that notes its seeds; another proxy adds them to the cookbook's requests: to the n-th sample of a
 * prompt, the seed of the n-th rollout of its group. Nothing else is changed, and both sides sample from weights of their
 * own, at the temperature of the configuration: once the weights differ, so do the answers.
 */
import { createServer, type IncomingMessage, request, type Server } from "node:http"
import type { AddressInfo } from "node:net"

interface Body {
  seq_id?: number
  lora_config?: { seed?: number }
  prompt?: { readonly chunks?: ReadonlyArray<{ readonly tokens?: ReadonlyArray<number> }> }
  prompt_logprobs?: boolean
  sampling_params?: { seed?: number }
}

const isModel = (path: string, body: Body) => path.endsWith("/create_model") && body.lora_config !== undefined
const isSample = (path: string, body: Body) => path.endsWith("/asample") && body.prompt_logprobs !== true

/** Identifies a prompt. One side sends the parts of a message as chunks of their own, the other one joins them. */
const promptOf = ({ prompt }: Body): string => (prompt?.chunks ?? []).flatMap(({ tokens }) => tokens ?? []).join(" ")

/** The seeds of one run: that of its adapter, and those of the samples of each prompt, which no two iterations share. */
export class Seeds {
  private model: number | undefined
  private readonly samples = new Map<string, Array<number | undefined>>()
  private readonly waiting = new Map<string, Array<{ readonly body: Body; readonly go: () => void }>>()
  /** How many samples got a seed. */
  filled = 0
  /** How many samples had no counterpart. */
  missing = 0

  /** How many samples were noted. */
  get size(): number {
    return [...this.samples.values()].reduce((sum, { length }) => sum + length, 0)
  }

  /** Notes the seeds of a run that samples one rollout at a time, in order. */
  readonly note = async (path: string, body: Body): Promise<void> => {
    if (isModel(path, body)) this.model = body.lora_config?.seed
    if (!isSample(path, body)) return
    const prompt = promptOf(body)
    this.samples.set(prompt, [...(this.samples.get(prompt) ?? []), body.sampling_params?.seed])
  }

  /** Adds seeds. Samples of a group overtake each other on their way, so they wait until all of them are there. */
  readonly fill = async (path: string, body: Body): Promise<void> => {
    if (isModel(path, body)) Object.assign(body.lora_config ?? {}, { seed: this.model })
    if (!isSample(path, body)) return
    const prompt = promptOf(body)
    const seeds = this.samples.get(prompt)
    if (seeds === undefined) return void this.missing++
    const waiting = this.waiting.get(prompt) ?? []
    this.waiting.set(prompt, waiting)
    const turn = new Promise<void>((go) => waiting.push({ body, go }))
    if (waiting.length === seeds.length) {
      const ordered = waiting.toSorted((a, b) => (a.body.seq_id ?? 0) - (b.body.seq_id ?? 0))
      for (const [at, { body, go }] of ordered.entries()) {
        Object.assign((body.sampling_params ??= {}), { seed: seeds[at] })
        this.filled++
        go()
      }
    }
    return turn
  }
}

const bodyOf = async (message: IncomingMessage): Promise<Buffer> => {
  const chunks: Array<Buffer> = []
  for await (const chunk of message) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

/** Starts a proxy that shows the bodies of samples and new models to a function, which may change or delay them. */
export const proxy = (
  target: string,
  see: (path: string, body: Body) => Promise<void>,
): Promise<Server & { url: string }> => {
  const server = createServer((incoming, outgoing) => {
    const path = incoming.url ?? "/"
    const fail = (error: Error) => outgoing.destroy(error)
    const forward = async () => {
      const bytes = await bodyOf(incoming)
      const isSeen = path.endsWith("/asample") || path.endsWith("/create_model")
      const body: unknown = isSeen ? JSON.parse(bytes.toString()) : undefined
      if (isSeen) await see(path, body as Body)
      const sent = isSeen ? Buffer.from(JSON.stringify(body)) : bytes
      const headers = { ...incoming.headers, host: new URL(target).host, "content-length": String(sent.length) }
      const forwarded = request(new URL(path, target), { method: incoming.method, headers }, (response) => {
        outgoing.writeHead(response.statusCode ?? 502, response.headers)
        response.pipe(outgoing)
      })
      forwarded.on("error", fail)
      outgoing.on("close", () => forwarded.destroy())
      forwarded.end(sent)
    }
    forward().catch(fail)
  })
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () =>
      resolve(Object.assign(server, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })),
    )
  })
}

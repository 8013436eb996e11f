/**
 * Measures events per second of a chat stream, and the heap after garbage collections during the stream: it must not
 * grow with the number of events. Run: tsx scripts/bench/stream.ts [events]
 */
import { HttpClient, HttpClientResponse } from "@effect/platform"
import { Effect, Layer, Redacted, Stream } from "effect"
import { ChatClient, TinkerConfig } from "effect-tinker"
import * as Sse from "effect-tinker/http/Sse"
import * as Transport from "effect-tinker/Transport"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc") as () => void

const events = Number(process.argv[2] ?? 1_000_000)
const inOnePiece = 100
const marks = 10

const event = `data: ${JSON.stringify({
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  created: 1,
  model: "tinker://run/sampler_weights/1",
  choices: [{ index: 0, delta: { content: " word" }, logprobs: null, finish_reason: null }],
})}\n\n`
const piece = new TextEncoder().encode(event.repeat(inOnePiece))
const end = new TextEncoder().encode("data: [DONE]\n\n")

const report = (heap: ReadonlyArray<number>, seconds: number) => {
  const growth = (heap.at(-1) ?? 0) - (heap[1] ?? 0)
  console.log(`  ${Math.round(events / seconds).toLocaleString("en")} events per second`)
  console.log(`  heap in MB: ${heap.map((bytes) => (bytes / 1e6).toFixed(2)).join(" ")}`)
  console.log(`  growth after the first tenth: ${(growth / (events * 0.8)).toFixed(3)} bytes per event`)
}

/** Yields the chunks, and measures the heap at every tenth. */
function* pieces(heap: Array<number>): Generator<Uint8Array> {
  for (let sent = 0; sent < events; sent += inOnePiece) {
    if (sent % (events / marks) === 0) {
      collect()
      heap.push(process.memoryUsage().heapUsed)
    }
    yield piece
  }
  yield end
}

const measure = <E>(name: string, run: (pieces: Iterable<Uint8Array>) => Effect.Effect<number, E>) =>
  Effect.gen(function* () {
    const heap: Array<number> = []
    const start = performance.now()
    const count = yield* run(pieces(heap))
    console.log(`${name}: ${count.toLocaleString("en")} values`)
    report(heap, (performance.now() - start) / 1000)
  })

const decoder = measure("Sse.decode", (pieces) =>
  Stream.fromIterable(pieces).pipe(Stream.rechunk(1), Sse.decode(), Stream.runCount),
)

const client = measure("ChatClient.streamChat", (pieces) => {
  const server = HttpClient.make((request, url) => {
    const iterator = pieces[Symbol.iterator]()
    const body = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => {
          const { done, value } = iterator.next()
          return done === true ? controller.close() : controller.enqueue(value)
        },
      },
      { highWaterMark: 0 },
    )
    const isChat = url.pathname.endsWith("/chat/completions")
    return Effect.succeed(
      HttpClientResponse.fromWeb(
        request,
        isChat ? new Response(body, { headers: { "content-type": "text/event-stream" } }) : new Response("{}"),
      ),
    )
  })
  return Effect.gen(function* () {
    const { streamChat } = yield* ChatClient.ChatClient
    return yield* Stream.runCount(streamChat({ model: "m", messages: [{ role: "user", content: "Hi" }] }))
  }).pipe(
    Effect.provide(
      ChatClient.layer.pipe(
        Layer.provide(Transport.layer),
        Layer.provide(TinkerConfig.layer({ apiKey: Redacted.make("tml-key") })),
        Layer.provide(Layer.succeed(HttpClient.HttpClient, server)),
      ),
    ),
  )
})

await Effect.runPromise(Effect.zipRight(decoder, client))

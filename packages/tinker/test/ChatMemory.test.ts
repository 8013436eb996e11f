// In a file of its own: other tests in the same process would be measured too.
import { HttpClient, HttpClientResponse } from "@effect/platform"
import { expect, it } from "@effect/vitest"
import { Effect, Layer, Redacted, Stream } from "effect"
import { ChatClient, TinkerConfig } from "effect-tinker"
import * as Transport from "effect-tinker/Transport"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

it.effect("streamChat does not retain the events of a long stream", () => {
  setFlagsFromString("--expose-gc")
  const collectGarbage = runInNewContext("gc") as () => void
  const text = "a text that would be measured if it were retained".repeat(4)
  const event = `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta: { content: text } }] })}\n\n`
  const hundred = new TextEncoder().encode(event.repeat(100))
  const [warm, count] = [300, 1000]
  const heap: Array<number> = []
  let pulled = 0
  const body = new ReadableStream<Uint8Array>(
    {
      pull: (controller) => {
        pulled++
        if (pulled === warm || pulled === count) {
          collectGarbage()
          heap.push(process.memoryUsage().heapUsed)
        }
        controller.enqueue(pulled > count ? new TextEncoder().encode("data: [DONE]\n\n") : hundred)
      },
    },
    { highWaterMark: 0 },
  )
  const server = HttpClient.make((request, url) =>
    Effect.succeed(
      HttpClientResponse.fromWeb(
        request,
        url.pathname.endsWith("/chat/completions")
          ? new Response(body, { headers: { "content-type": "text/event-stream" } })
          : new Response("{}"),
      ),
    ),
  )
  return Effect.gen(function* () {
    const { streamChat } = yield* ChatClient.ChatClient
    const parts = yield* Stream.runCount(streamChat({ model: "m", messages: [{ role: "user", content: "Hi" }] }))
    expect(parts).toBe(100 * count + 1)
    const [before = 0, after = Infinity] = heap
    // A retained part takes more than 200 bytes.
    expect((after - before) / (100 * (count - warm))).toBeLessThan(20)
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

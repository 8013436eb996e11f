/** HTTP messages as the proxy holds them: complete, with their headers as they were sent. */
import { type IncomingMessage, request as send } from "node:http"
import { Data, Effect } from "effect"

export interface Message {
  readonly method: string
  readonly path: string
  readonly headers: ReadonlyArray<string>
  readonly body: Buffer
}

export interface Reply {
  readonly status: number
  /** Names and values in turns. */
  readonly headers: ReadonlyArray<string>
  readonly body: Buffer
}

/** The connection to the server could not be made, or broke. */
export class UpstreamLost extends Data.TaggedError("UpstreamLost")<{}> {}

/** Reads a message to its end. */
export const bodyOf = (message: IncomingMessage): Effect.Effect<Buffer, UpstreamLost> =>
  Effect.async((resume) => {
    const parts: Array<Buffer> = []
    message.on("data", (part: Buffer) => parts.push(part))
    message.once("end", () => resume(Effect.succeed(Buffer.concat(parts))))
    message.once("error", () => resume(new UpstreamLost()))
    message.once("close", () => resume(new UpstreamLost()))
  })

/** Returns the value of a header, by its name in lower case. */
export const header = (headers: ReadonlyArray<string>, name: string): string | undefined =>
  headers.find((_, index) => index % 2 === 1 && headers[index - 1]?.toLowerCase() === name)

const withoutLength = (headers: ReadonlyArray<string>) =>
  headers.filter((_, index) => {
    const name = headers[index - (index % 2)]?.toLowerCase()
    return name !== "content-length" && name !== "transfer-encoding" && name !== "connection"
  })

/** Sends a message to the server on a connection of its own and reads the whole response. */
export const forward = (port: number, message: Message): Effect.Effect<Reply, UpstreamLost> =>
  Effect.async<IncomingMessage, UpstreamLost>((resume) => {
    const { body, headers, method, path } = message
    const length = body.length === 0 && method === "GET" ? [] : ["content-length", String(body.length)]
    const outgoing = send(
      {
        host: "127.0.0.1",
        port,
        method,
        path,
        headers: [...withoutLength(headers), ...length, "connection", "close"],
        agent: false,
      },
      (answer) => resume(Effect.succeed(answer)),
    )
    outgoing.once("error", () => resume(new UpstreamLost()))
    outgoing.end(body)
    return Effect.sync(() => outgoing.destroy())
  }).pipe(
    Effect.flatMap((answer) =>
      Effect.map(bodyOf(answer), (body) => ({
        status: answer.statusCode ?? 502,
        headers: withoutLength(answer.rawHeaders),
        body,
      })),
    ),
  )

/** Opens the journal named on a line of input, prints the result, and closes the journal at the next line. */
import { createInterface } from "node:readline"
import { Effect, Exit, Scope } from "effect"
import { FileJournal } from "@effect-tinker/node"

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const nextLine = Effect.map(
  Effect.promise(() => lines.next()),
  ({ done, value }) => (done === true ? undefined : value),
)

const contend = Effect.gen(function* () {
  for (;;) {
    const path = yield* nextLine
    if (path === undefined) return
    const scope = yield* Scope.make()
    const opened = yield* Effect.either(Scope.extend(FileJournal.make(path), scope))
    console.log(opened._tag === "Right" ? "won" : opened.left.reason)
    yield* nextLine
    yield* Scope.close(scope, Exit.void)
    console.log("closed")
  }
})

await Effect.runPromise(contend)

/** Performs a command outside of the bundle. Only plain values and promises cross this border. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type { Handler } from "./Commands.ts"
import { Described } from "./Failure.ts"
import type * as Installed from "./Installed.ts"
import type { Settings } from "./Output.ts"
import { type Quit, type Service, Shell } from "./Shell.ts"

const signalOf = (effect: Effect.Effect<void>) =>
  Effect.gen(function* () {
    const controller = new AbortController()
    yield* Effect.forkScoped(Effect.map(effect, () => controller.abort()))
    return controller.signal
  })

/** The shell as plain values and promises. */
const plain = (shell: Service) =>
  Effect.gen(function* () {
    const { ask, err, hurried, line, out, secret, stopped, ...values } = shell
    const runtime = yield* Effect.runtime<never>()
    const promise = <A>(effect: Effect.Effect<A>): Promise<A> => Effect.runPromise(Effect.provide(effect, runtime))
    const answer = (effect: Effect.Effect<Option.Option<string>, Quit>): Promise<Installed.Answer> =>
      Effect.map(Effect.either(effect), (given) => ({
        hasQuit: Either.isLeft(given),
        text: Option.getOrUndefined(Option.flatten(Either.getRight(given))),
      })).pipe(promise)
    return {
      ...values,
      out: (text: string) => promise(out(text)),
      err: (text: string) => promise(err(text)),
      line: () => answer(line),
      ask: (question: string) => answer(ask(question)),
      secret: (question: string) => answer(secret(question)),
      stopped: yield* signalOf(stopped),
      hurried: yield* signalOf(hurried),
    } satisfies Installed.PlainShell
  })

/** Performs a command with the installed packages. An interruption is passed on, and waited for. */
export const perform =
  <Name extends Installed.Name>(name: Name): Handler<Installed.Input<Name>> =>
  (input, settings: Settings) =>
    Effect.gen(function* () {
      const shell = yield* plain(yield* Shell)
      const { perform } = yield* Effect.promise(() => import("./Installed.ts"))
      const failure = yield* Effect.async<Installed.Ended>((resume) => {
        const controller = new AbortController()
        const ended = perform(name, input, settings, shell, controller.signal)
        void ended.then((result) => resume(Effect.succeed(result)))
        return Effect.promise(() => {
          controller.abort()
          return ended
        })
      })
      if (failure !== undefined) return yield* new Described(failure)
    }).pipe(Effect.scoped)

/** Decides whether a run whose processes were killed ended like one without kills. Pure. */
import { isDeepStrictEqual } from "node:util"
import { pieces } from "../program/Data.ts"
import { steps } from "../program/Run.ts"
import type { Observation } from "./Kills.ts"

const step = [...Array.from({ length: pieces }, () => "forward_backward"), "optim_step"]
const training = Array.from({ length: steps }, () => step).flat()

/** Returns what differs from a run without kills. */
export const check = (observation: Observation, reference: Observation): ReadonlyArray<string> => {
  const { end, output, record, report } = observation
  if (report === undefined) return [`the client reported nothing and ended with ${end}: ${output.slice(-500)}`]
  const failed = report.entries.flatMap(({ errors = {}, name }) =>
    Object.values(errors).map(({ message, tag }) => `${name}: ${tag}: ${message.slice(0, 300)}`),
  )
  if (failed.length > 0) return failed
  const done = record.accepted.flatMap(({ operation, state }) => (state === "result" ? [operation] : []))
  const results = ["forward", "save", "sample"].flatMap((name) => {
    const value = (entries: typeof report.entries) => entries.find((entry) => entry.name === name)?.value
    return isDeepStrictEqual(value(report.entries), value(reference.report?.entries ?? [])) ? [] : [`${name} differs`]
  })
  return [
    ...results,
    ...(record.weights["weights/last"] === reference.record.weights["weights/last"] ? [] : ["the weights differ"]),
    ...(isDeepStrictEqual(done.slice(0, training.length), training)
      ? []
      : [`the server did ${done.join(" ")}; expected ${training.join(" ")} first`]),
    ...(end === 0 ? [] : [`the client ended with ${end}`]),
  ]
}

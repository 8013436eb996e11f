/** Prints JSON as the Rust library `serde_json` does. */
import * as Either from "effect/Either"
import * as ExactJson from "../../ExactJson.ts"
import { jsonText } from "../template/Printing.ts"
import { compareText } from "./PythonJson.ts"

/** Prints the shortest digits, with an exponent from 1e16 on and below 1e-5. */
const float = (value: number): string => {
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0"
  const [mantissa = "", exponent = "0"] = Math.abs(value).toExponential().split("e")
  const digits = mantissa.replace(".", "")
  const point = Number(exponent) + 1
  const sign = value < 0 ? "-" : ""
  if (digits.length <= point && point <= 16) return `${sign}${digits.padEnd(point, "0")}.0`
  if (point > 0 && point <= 16) return `${sign}${digits.slice(0, point)}.${digits.slice(point)}`
  if (point > -5 && point <= 0) return `${sign}0.${"0".repeat(-point)}${digits}`
  return `${sign}${mantissa}e${point - 1}`
}

const integer = (value: bigint): string =>
  value >= -(2n ** 63n) && value < 2n ** 64n ? String(value) : float(Number(value))

/** Compares by code points, as Rust compares bytes. */
const byKey = ([one]: readonly [string, unknown], [other]: readonly [string, unknown]): number =>
  compareText(one, other)

/** Prints a text. */
export const text = (value: string): string => jsonText(value, false)

/** Which objects are written with sorted keys. */
export type Sorted = "none" | "outermost" | "all"

/** Prints a value; fails with the reason if it is not a number of JSON. */
export const print = (value: ExactJson.ExactJson, sorted: Sorted): Either.Either<string, string> => {
  if (typeof value === "string") return Either.right(text(value))
  if (typeof value === "bigint") return Either.right(integer(value))
  if (value instanceof ExactJson.Float) {
    return Number.isFinite(value.value) ? Either.right(float(value.value)) : Either.left(`${value.value} is not JSON`)
  }
  const inner = sorted === "all" ? "all" : "none"
  if (Array.isArray(value)) {
    return Either.map(
      Either.all(value.map((one: ExactJson.ExactJson) => print(one, inner))),
      (all) => `[${all.join(",")}]`,
    )
  }
  if (value instanceof Map) {
    const entries: ReadonlyArray<readonly [string, ExactJson.ExactJson]> = [...value]
    const ordered = sorted === "none" ? entries : entries.toSorted(byKey)
    return Either.map(
      Either.all(ordered.map(([key, given]) => Either.map(print(given, inner), (one) => `${text(key)}:${one}`))),
      (all) => `{${all.join(",")}}`,
    )
  }
  return Either.right(String(value))
}

/** Reads numbers as `serde_json` does: integers beyond 64 bits become floats, and floats must be finite. */
export const normal = (value: ExactJson.ExactJson): Either.Either<ExactJson.ExactJson, string> => {
  if (typeof value === "bigint") {
    return Either.right(value >= -(2n ** 63n) && value < 2n ** 64n ? value : new ExactJson.Float(Number(value)))
  }
  if (value instanceof ExactJson.Float) {
    return Number.isFinite(value.value) ? Either.right(value) : Either.left("number out of range")
  }
  if (Array.isArray(value)) return Either.all(value.map((one: ExactJson.ExactJson) => normal(one)))
  if (value instanceof Map) {
    const entries: ReadonlyArray<readonly [string, ExactJson.ExactJson]> = [...value]
    return Either.map(
      Either.all(entries.map(([key, one]) => Either.map(normal(one), (given) => [key, given] as const))),
      (all) => new Map(all),
    )
  }
  return Either.right(value)
}

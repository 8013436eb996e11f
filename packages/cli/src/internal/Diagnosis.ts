/** Decides whether what `tinkerfx doctor` has found is a problem, and what to do about it. */
import * as Words from "./Words.ts"

export type Status = "ok" | "warning" | "failed"

/** The result of one check. */
export interface Finding {
  readonly check: string
  readonly status: Status
  readonly detail: string
  /** The advice, unless all is well. */
  readonly hint?: string | undefined
}

const partsOf = (version: string) => version.split(".").map(Number)

/** Node must be 20.19 or newer. */
export const node = (version: string): Finding => {
  const [major = 0, minor = 0] = partsOf(version)
  const isNew = major > 20 || (major === 20 && minor >= 19)
  return isNew
    ? { check: "node", status: "ok", detail: `Node.js ${version}` }
    : {
        check: "node",
        status: "failed",
        detail: `Node.js ${version} is too old`,
        hint: "Install Node.js 20.19 or newer.",
      }
}

/** A server refuses tokens and signed URLs when the clock of this machine is far off. */
export const clock = (server: number | undefined, now: number): Finding => {
  if (server === undefined || Number.isNaN(server))
    return {
      check: "clock",
      status: "warning",
      detail: "The server has not told its time",
      hint: "Compare the clock of this machine with another one.",
    }
  const seconds = Math.round((now - server) / 1000)
  // The header has whole seconds, and the answer has travelled.
  if (Math.abs(seconds) <= 5) return { check: "clock", status: "ok", detail: "The clock agrees with the server's" }
  const detail = `The clock is ${Words.plural(Math.abs(seconds), "second")} ${seconds > 0 ? "ahead of" : "behind"} the server's`
  const hint = "Set the clock, e.g. with timedatectl set-ntp true."
  return { check: "clock", status: Math.abs(seconds) > 60 ? "failed" : "warning", detail, hint }
}

/** Runs and downloads need room. */
export const disk = (name: string, free: number | undefined, problem: string | undefined): Finding => {
  if (problem !== undefined)
    return {
      check: "disk",
      status: "failed",
      detail: `${name} cannot be written: ${problem}`,
      hint: "Work in a directory that belongs to you.",
    }
  if (free !== undefined && free < 1e9)
    return {
      check: "disk",
      status: "warning",
      detail: `Only ${Words.size(free)} are free in ${name}`,
      hint: "Make room: checkpoints and tokenizers take hundreds of megabytes.",
    }
  return {
    check: "disk",
    status: "ok",
    detail: `${name} can be written${free === undefined ? "" : `, ${Words.size(free)} are free`}`,
  }
}

/** A file with keys that others can read. */
export const permissions = (path: string, mode: number): Finding =>
  (mode & 0o077) === 0
    ? { check: "stored keys", status: "ok", detail: `Only you can read ${path}` }
    : {
        check: "stored keys",
        status: "warning",
        detail: `Other users can read ${path}`,
        hint: `Run: chmod 600 ${path}`,
      }

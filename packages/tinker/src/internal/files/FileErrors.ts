/** Converts platform errors to `FileFailed`. */
import type { PlatformError } from "@effect/platform/Error"
import * as Predicate from "effect/Predicate"
import { FileFailed } from "../../TinkerError.ts"

/** The platform reports these reasons only through the system error code. */
const byCode: Readonly<Record<string, FileFailed["reason"]>> = {
  ENOSPC: "DiskFull",
  EDQUOT: "DiskFull",
  EFBIG: "DiskFull",
  EACCES: "PermissionDenied",
  EPERM: "PermissionDenied",
  EROFS: "PermissionDenied",
}

const reasonOf = (error: PlatformError): FileFailed["reason"] => {
  const code = Predicate.hasProperty(error.cause, "code") ? String(error.cause.code) : ""
  const known = byCode[code]
  if (known !== undefined || error._tag === "BadArgument") return known ?? "Other"
  return error.reason === "PermissionDenied" || error.reason === "NotFound" ? error.reason : "Other"
}

export const fileFailed =
  (path: string) =>
  (error: PlatformError): FileFailed =>
    new FileFailed({ reason: reasonOf(error), path, detail: error.message, cause: error.cause })

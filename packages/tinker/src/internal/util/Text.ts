const detailLimit = 1000

/** Matches the start of a Python traceback, or of a Ray worker's traceback in the middle of a line. */
const tracebackStart = /Traceback \(most recent call last\)|ray::|^\s*File ".*", line \d+/

// ANSI color sequences.
// oxlint-disable-next-line no-control-regex
const colors = /\u001b\[[0-9;]*m/g

/**
 * Shortens text for a message: strips colors, keeps only the last line of a traceback, and truncates to 1,000
 * characters.
 */
export const shorten = (text: string): string => {
  const lines = text.replace(colors, "").trim().split("\n")
  const traceback = lines.findIndex((line) => tracebackStart.test(line))
  const before = lines[traceback]?.split(tracebackStart)[0] ?? ""
  const words = (traceback < 0 ? lines : [...lines.slice(0, traceback), `${before}${(lines.at(-1) ?? "").trim()}`])
    .join("\n")
    .trim()
  return words.length > detailLimit ? `${words.slice(0, detailLimit)}… (${words.length} characters)` : words
}

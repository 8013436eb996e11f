/** Implements `strftime` with English names, independently of the locale. */
import * as DateTime from "effect/DateTime"
import { unsupported } from "./Failure.ts"

const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
const months = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
]

/** The local time in a time zone. */
export type WallTime = DateTime.DateTime.PartsWithWeekday

export const wallTime = (millis: number, zone: DateTime.TimeZone): WallTime =>
  DateTime.toParts(DateTime.unsafeMakeZoned(millis, { timeZone: zone }))

const dayOfYear = ({ day, month, year }: WallTime): number =>
  (Date.UTC(year, month - 1, day) - Date.UTC(year, 0, 0)) / 86_400_000

export const strftime = (time: WallTime, format: string): string =>
  format.replace(/%(-?)([\s\S]?)/g, (directive, dash: string, code: string) => {
    const padded = (value: number, width = 2) => (dash === "" ? String(value).padStart(width, "0") : String(value))
    switch (code) {
      case "Y":
        return String(time.year)
      case "y":
        return padded(time.year % 100)
      case "m":
        return padded(time.month)
      case "d":
        return padded(time.day)
      case "e":
        return dash === "" ? String(time.day).padStart(2) : String(time.day)
      case "H":
        return padded(time.hours)
      case "I":
        return padded(time.hours % 12 === 0 ? 12 : time.hours % 12)
      case "M":
        return padded(time.minutes)
      case "S":
        return padded(time.seconds)
      case "j":
        return padded(dayOfYear(time), 3)
    }
    if (dash !== "") return unsupported(`strftime_now with ${directive}`)
    switch (code) {
      case "B":
        return months[time.month - 1] ?? ""
      case "b":
      case "h":
        return (months[time.month - 1] ?? "").slice(0, 3)
      case "A":
        return days[time.weekDay] ?? ""
      case "a":
        return (days[time.weekDay] ?? "").slice(0, 3)
      case "p":
        return time.hours < 12 ? "AM" : "PM"
      case "F":
        return strftime(time, "%Y-%m-%d")
      case "T":
        return strftime(time, "%H:%M:%S")
      case "D":
        return strftime(time, "%m/%d/%y")
      case "R":
        return strftime(time, "%H:%M")
      case "%":
        return "%"
      default:
        return unsupported(`strftime_now with ${directive}`)
    }
  })

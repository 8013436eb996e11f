/** Former names of `Callback.ts`, kept until the training and sampling clients import the new ones. */
export { exitOf, fromCallback as awaited, noop as nothingLeft, type Stop, tryExit as attempt } from "./Callback.ts"

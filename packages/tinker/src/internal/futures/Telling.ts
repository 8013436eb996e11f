export { FutureImpl as Telling } from "./FutureImpl.ts"

/**
 * @since 0.1.0
 */
export * as FileJournal from "./FileJournal.ts"
export * as NodeHost from "./NodeHost.ts"
export * as NodeTinker from "./NodeTinker.ts"
export * as UndiciHttpClient from "./UndiciHttpClient.ts"

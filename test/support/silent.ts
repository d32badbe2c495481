import { type RunLog } from '#contracts'

/** A log that keeps nothing. */
export const silent: RunLog = { debug() {}, info() {}, warn() {}, error() {} }

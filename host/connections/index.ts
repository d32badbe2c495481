export { retryWhileUnreachable } from './retry.ts'
export { openStreams, type Streams } from './streams.ts'

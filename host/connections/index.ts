export { patiently } from './retry.ts'
export { openStreams, type Streams } from './streams.ts'

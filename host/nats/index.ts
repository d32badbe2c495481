export { openJetStream } from './nats.ts'
export { prefixOf, queueOptions } from './settings.ts'

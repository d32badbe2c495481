export { openJetStream } from './nats.ts'
export { reportConnection } from './report-connection.ts'
export { prefixOf, queueOptions } from './settings.ts'

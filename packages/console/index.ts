export { type Data, openData } from './data/data.ts'
export type { Abilities } from './pages/page.ts'
export { createConsole, type ShownCluster } from './server/server.ts'

export { type Data, openData } from './data/data.ts'
export type { Abilities } from './pages/page.ts'
export { createConsole } from './server/server.ts'

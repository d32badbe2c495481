export { issueFrom, newAuthority, newKeys, type Signed } from './authority.ts'
export type { Subject } from './certificate.ts'

export { issueFrom, newAuthority, newKeys, type Signed } from './authority.ts'
export { type Subject, signCertificate } from './certificate.ts'
export { keysFrom, signingKeysFrom } from './derived-keys.ts'

export { issueFrom, newAuthority, newKeys, type Signed, type Subject, signCertificate } from './certificate.ts'

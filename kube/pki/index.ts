export {
  issueFrom,
  keysFrom,
  newAuthority,
  newKeys,
  type Signed,
  type Subject,
  signCertificate,
  signingKeysFrom,
} from './certificate.ts'

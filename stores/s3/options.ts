import type { Connection } from '../types.ts'
import type { Profile } from './profile.ts'

export interface S3Options extends Connection, Profile {
  bucket: string
  /** True: the bucket is in the path of the URL, not in its host. Always so for endpoints that are IP addresses. */
  pathStyle?: boolean | undefined
}

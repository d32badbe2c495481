import type { Connection } from '../types.ts'
import type { AbsAccount } from './sign.ts'

export interface AbsOptions extends Connection, AbsAccount {
  container: string
  /** The name of the Azure cloud, such as `AzureChinaCloud`. Default: the public cloud. */
  cloud?: string | undefined
}

import type { Connection } from '../types.ts'
import type { AbsAccount } from './sign.ts'

export interface AbsOptions extends Connection, AbsAccount {
  container: string
  /** Name of the Azure cloud, e.g. `AzureChinaCloud`. Default: the public one. */
  cloud?: string | undefined
}

import type { KubeClient, KubeClientOptions } from './types.ts'

export function createKubeClient(options: KubeClientOptions): KubeClient {
  throw new Error(`no transport to ${options.server} yet`)
}

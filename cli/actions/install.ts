import { loadFunctions } from '#host/functions'
import { openKube } from '#host/kube'
import { install } from '#install'
import type { CommandContext } from '../options.ts'
import { table } from '../table.ts'

export interface InstallOptions {
  function: string[]
  output: 'table' | 'json'
  revision?: string
  force: boolean
  natsCertificates: boolean
}

export async function installFunctions(options: InstallOptions, { config, print }: CommandContext): Promise<void> {
  await using kube = await openKube(await config())
  const installed = await install(kube, await loadFunctions(options.function), options)
  const rows = installed.map(({ kind, name, result }) => [kind, name, result])
  print(options.output === 'json' ? JSON.stringify(installed, null, 2) : table(['KIND', 'NAME', 'RESULT'], rows))
}
